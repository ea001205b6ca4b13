"""Look-alike names: told apart by contrast only."""

from hypothesis import given
from hypothesis import strategies as st

from langchain_hermes_memory.lookalikes import look_alikes


def test_another_company():
    """One character makes it another; both names are told."""
    texts = {1: "给华星科技发合同初稿", 2: "给华兴科技发采购合同"}
    ((number, (asked, found)),) = look_alikes("把合同发给华星科技", texts).items()
    assert number == 2
    assert "星" in asked
    assert found == asked.replace("星", "兴")


def test_another_host_or_table():
    """Identifiers with a digit or mark."""
    assert look_alikes("restart web-01", {1: "restart web-01", 2: "restart web-02"}) == {
        2: ("web-01", "web-02")
    }
    texts = {1: "drop orders_2024", 2: "drop orders_2023", 3: "list the customers"}
    assert set(look_alikes("drop the partition orders_2024", texts)) == {2}


def test_without_contrast_nothing_is_claimed():
    """What is known of a near name may be all that there is."""
    assert look_alikes("restart web-01", {1: "restart web-02", 2: "restart the database"}) == {}


def test_a_memory_of_both_is_of_the_one_asked_for():
    """It holds the name itself."""
    assert look_alikes("restart web-01", {1: "restart web-01 and web-02"}) == {}


def test_ordinary_words_are_no_names():
    """Inflections and the like."""
    assert (
        look_alikes("install the reports", {1: "installed the reports", 2: "the report is installed"}) == {}
    )


@given(st.text(max_size=60), st.dictionaries(st.integers(0, 5), st.text(max_size=60), max_size=5))
def test_what_is_claimed_holds(request_text, texts):
    """The name is in the request and not in the memory, its look-alike is."""
    for number, (name, near) in look_alikes(request_text, texts).items():
        assert name in request_text.lower()
        assert near in texts[number].lower()
        assert name != near

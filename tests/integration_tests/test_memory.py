"""The whole path through the one object, on real parts: ledger and Chroma on disk, a real embedding model."""

import contextlib
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool, ToolException
from pydantic import create_model

from langchain_hermes_memory import HermesMemory, RecallFilter, Settings, Status
from langchain_hermes_memory.errors import (
    ConfigurationError,
    EmbeddingError,
    EmbeddingMismatchError,
    StoreDamagedError,
    StoreError,
)
from langchain_hermes_memory.record import utc_now


def programmed(name, parameter, output, fails):
    """A tool that does what the test says."""

    def call(**_):
        if fails:
            raise ToolException(fails)
        return output

    call.__annotations__ = {parameter: str}
    schema = create_model(name, **{parameter: (str, ...)})
    return StructuredTool.from_function(call, name=name, description="a tool", args_schema=schema)


def clean(path, *, fails=""):
    return programmed("clean", "path", f"SUCCESS: removed 3 files from {path}", fails), {"path": path}


def shell(command, *, output="", fails=""):
    return programmed("shell", "command", output, fails), {"command": command}


class Reversed(Embeddings):
    """Another model than the usual one, with vectors of the same length."""

    def __init__(self, model):
        self.model = model

    def embed_documents(self, texts):
        return [vector[::-1] for vector in self.model.embed_documents(texts)]

    def embed_query(self, text):
        return self.model.embed_query(text)[::-1]


class Flaky(Embeddings):
    """A model that can be switched off."""

    def __init__(self, model):
        self.model = model
        self.down = False

    def embed_documents(self, texts):
        if self.down:
            raise ConnectionError("the embedding service is down")
        return self.model.embed_documents(texts)

    def embed_query(self, text):
        return self.embed_documents([text])[0]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "memory"


@pytest.fixture
def opened(folder, offline_embeddings, clock):
    """Open memories on one folder; all are closed at the end."""
    memories = []

    def open_memory(**options):
        given = {"embeddings": offline_embeddings, "clock": clock, **options}
        memories.append(HermesMemory(folder, **given))
        return memories[-1]

    yield open_memory
    for memory in memories:
        memory.close()


@pytest.fixture
def memory(opened):
    return opened()


def run(memory, call, *, intent="", session="default"):
    """Run a tool as an agent would: inside a chain that names the request."""
    which, arguments = call

    def work(_, config):
        with contextlib.suppress(ToolException):
            which.invoke(arguments, config)

    chain = RunnableLambda(work)
    chain.invoke({"input": intent}, {"callbacks": [memory.callback], "metadata": {"session_id": session}})


class TestPath:
    """What is recorded is recalled, with its limits."""

    def test_an_accident_is_recalled_as_one(self, memory):
        """The story that the product exists for: the block says that the failure may be temporary."""
        run(memory, clean("/tmp/cache", fails="path does not exist"), intent="clean the cache")
        block = memory.context("clean up the temporary files in /tmp/cache")
        assert "may" in block.text.lower()
        assert "`/tmp/cache`" in block.text
        assert block.hits[0].memory.record.execution_result.transient

    def test_a_request_for_another_folder_is_told_the_difference(self, memory):
        """A lesson about /tmp/cache is no lesson about /var/tmp."""
        run(
            memory,
            clean("/tmp/cache", fails="Permission denied: /tmp/cache"),
            intent="clean the cache",
        )
        text = memory.context("clean up the cache in /var/tmp").text
        assert not text or "not about `/var/tmp`" in text

    def test_a_later_success_resolves(self, memory, clock):
        """Both are shown, the success first, and the failure says that it is solved."""
        call = "docker build -t api ."
        run(memory, shell(call, fails="no space left on device"), intent="build the api image")
        clock.advance(days=1)
        run(memory, shell(call, output="Successfully built 1f2e"), intent="build the api image")
        assert memory.stats()["memories"] == 2
        block = memory.context("build the api image again")
        statuses = [hit.memory.record.execution_result.status for hit in block.hits]
        assert statuses == [Status.SUCCESS, Status.FAILURE]
        assert "Solved since" in block.text

    def test_a_success_on_another_target_is_no_solution(self, memory, clock):
        """What worked on a look-alike is never offered as the way out."""
        run(memory, clean("/srv/data", fails="Permission denied"), intent="free some space")
        clock.advance(minutes=1)
        run(memory, clean("/srv/data_old"), intent="free some space")
        first, second = (hit.memory for hit in memory.recall("clean /srv/data"))
        assert (first.record.failed, second.record.failed) == (True, False)
        assert first.solution is None

    def test_another_way_in_the_same_task_is_its_solution(self, memory, clock):
        """The way that worked stands beside the failure."""
        run(
            memory,
            shell("pip install numpy", fails="ERROR: [Errno 13] Permission denied"),
            intent="install numpy",
        )
        clock.advance(minutes=1)
        run(
            memory,
            shell("pip install numpy --user", output="Successfully installed numpy-2.3"),
            intent="install numpy",
        )
        assert "What worked instead: `" in memory.context("install numpy please").text

    def test_copies_are_counted(self, memory, clock):
        """The same action with the same outcome is one memory."""
        for _ in range(4):
            run(memory, shell("git push", fails="remote rejected: protected branch"))
            clock.advance(hours=5)
        found = memory.recall("push my branch", tool="shell", command="git push")
        assert [hit.memory.occurrences.times for hit in found] == [4]
        assert "4 times" in memory.context("git push my branch").text

    def test_a_planned_call_finds_its_own_history(self, memory):
        """By the exact action, whatever the words of the request."""
        run(memory, shell("make deploy", fails="exit status 2: health check failed"))
        hit = memory.recall("and now?", tool="shell", command={"command": "make deploy"})[0]
        assert hit.signals["action"] > 0

    def test_across_languages(self, memory, clock):
        """A request in Chinese finds what was recorded in English, and the block is Chinese."""
        call = shell("pg_dump users", fails="pg_dump: error: permission denied for table users")
        run(memory, call, intent="back up the user database")
        assert "失败的教训" in memory.context("备份用户数据库").text

    def test_nothing_relevant_gives_an_empty_block(self, memory):
        """Neither thanks nor another matter bring up old failures."""
        run(memory, shell("pg_dump users", fails="Permission denied"), intent="back up users")
        assert memory.context("Thanks, that is all!").text == ""
        assert memory.context("suggest a name for my kitten").text == ""

    def test_words_of_the_user_outlive_the_session(self, memory):
        """A preference is recalled in another session."""
        memory.scoped(session_id="monday").remember("I want every report as a PDF file")
        text = memory.scoped(session_id="friday").context("export the report").text
        assert "every report as a PDF" in text

    def test_below_the_threshold_only_the_session_remembers(self, memory, clock):
        """A single accident stays in working memory: seen in its session, not in others."""
        call = shell("curl https://example.com/feed", fails="Read timed out")
        run(memory, call, intent="fetch the feed", session="a")
        assert memory.scoped(session_id="a").recall("fetch the feed")
        assert not memory.scoped(session_id="b").recall("fetch the feed")

    def test_the_session_remembers_by_meaning(self, memory):
        """An accident that is not kept for long is found by other words, in its own session."""
        call = clean("/tmp/cache", fails="path does not exist")
        run(memory, call, intent="clean /tmp/cache", session="a")
        assert memory.scoped(session_id="a").recall("remove the temporary files")
        assert memory.scoped(session_id="a").recall("把临时文件删掉")


class TestFilters:
    """What may be recalled."""

    @pytest.fixture
    def filled(self, memory, clock):
        run(memory, shell("npm install", fails="EACCES: permission denied"), intent="install")
        clock.advance(days=2)
        run(memory, shell("npm install", output="added 90 packages"), intent="install")
        return memory

    @pytest.mark.parametrize(
        ("filters", "statuses"),
        [
            ({"statuses": (Status.FAILURE,)}, [Status.FAILURE]),
            ({"statuses": (Status.SUCCESS,)}, [Status.SUCCESS]),
            ({"categories": ("permission",)}, [Status.FAILURE]),
            ({"error_codes": ("PERMISSION_DENIED",)}, [Status.FAILURE]),
            ({"tools": ("mail",)}, []),
            ({"tags": ("failure",)}, [Status.FAILURE]),
            ({"min_importance": 100}, []),
        ],
    )
    def test_by_field(self, filled, filters, statuses):
        """Status, category, code, tool, tag, importance."""
        found = filled.recall("npm install the packages", filters=RecallFilter(**filters))
        assert [hit.memory.record.execution_result.status for hit in found] == statuses

    def test_by_time(self, filled, clock):
        """Only what was seen in the range."""
        since = RecallFilter(since=clock.now - timedelta(days=1))
        found = filled.recall("npm install the packages", filters=since)
        assert [hit.memory.record.execution_result.status for hit in found] == [Status.SUCCESS]

    def test_what_is_withdrawn_is_out(self, filled):
        """And comes back when the withdrawal is taken back."""
        handle = filled.recall("npm install", filters=RecallFilter(statuses=(Status.FAILURE,)))[
            0
        ].memory.handle
        filled.withdraw(handle)
        assert handle not in [hit.memory.handle for hit in filled.recall("npm install")]
        filled.withdraw(handle, obsolete=False)
        assert handle in [hit.memory.handle for hit in filled.recall("npm install")]

    def test_old_and_unimportant_is_out(self, opened, clock):
        """Older than the limit and below the importance that old memories need."""
        memory = opened(max_age_days=30, aged_importance=90)
        run(memory, shell("df -h", output="70 % used"), intent="check the disk")
        assert memory.recall("check the disk")
        clock.advance(days=31)
        assert not memory.recall("check the disk")


class TestNamespaces:
    """One user's records never reach another."""

    def test_nothing_crosses(self, memory):
        """Neither by words, by meaning, by action nor by handle; whatever the names."""
        names = ["ann", "Ann", "an/n", "安", "🙂", "a" * 500, "../x"]
        for name in names:
            run(
                memory.scoped(user=name),
                shell(f"deploy {name!a}", fails="rejected by the registry"),
                intent="deploy the shop",
            )
        for name in names:
            mine = memory.scoped(user=name)
            found = mine.recall("deploy the shop", tool="shell", command="deploy 'ann'")
            assert [hit.memory.record.namespace.user for hit in found] == [name]
        handle = memory.scoped(user="ann").recall("deploy the shop")[0].memory.handle
        with pytest.raises(ConfigurationError):
            memory.scoped(user="安").memory(handle)
        assert memory.scoped(user="安").forget(handle) == []

    def test_agents_of_one_user_are_apart(self, memory):
        """The namespace is user and agent."""
        memory.scoped(agent="mail").remember("sign with A. Smith")
        assert not memory.scoped(agent="files").recall("how to sign the mail")


class TestSafety:
    """The agent never fails because of its memory."""

    def test_a_dead_embedder_costs_nothing(self, opened, offline_embeddings):
        """Runs are recorded and found by words; when it returns, everything is indexed."""
        model = Flaky(offline_embeddings)
        memory = opened(embeddings=model, background=False)
        model.down = True
        run(memory, shell("terraform apply", fails="Permission denied"), intent="apply it")
        assert "terraform" in memory.context("terraform apply again").text
        with pytest.raises(EmbeddingError):
            memory.flush()
        model.down = False
        assert memory.flush()
        assert memory.stats()["pending"] == 0

    def test_a_closed_memory_harms_no_agent(self, memory):
        """Runs go on, blocks are empty, errors are counted."""
        memory.close()
        run(memory, shell("ls", output="a b"))
        assert memory.context("ls").text == ""
        memory.close()

    def test_a_locked_ledger_harms_no_agent(self, memory, folder, caplog):
        """Another program that holds the database costs a record, not the run."""
        run(memory, shell("ls", output="a"))
        other = sqlite3.connect(folder / "ledger.db")
        other.execute("BEGIN IMMEDIATE")
        with caplog.at_level(logging.ERROR):
            run(memory, shell("pwd", output="/"))
        other.rollback()
        other.close()
        assert memory.stats()["session.capture_errors"] >= 1
        assert "the agent goes on without it" in caplog.text
        run(memory, shell("id", output="0"))
        assert memory.stats()["records"] == 2

    def test_secrets_are_in_no_file(self, memory, folder):
        """A key in a command, an output or a message is cut out before anything is written."""
        key = "AK" + "IAQ3EGT7XZ52NB4KWD"
        word = "hunter" + "2-very-long"
        run(
            memory,
            shell(f"aws configure set key {key}", output=f"saved; password={word}"),
            intent=f"use {key}",
        )
        memory.remember(f"the password is {word}")
        memory.flush()
        memory.close()
        for file in folder.rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                assert key.encode() not in content, file
                assert word.encode() not in content, file

    def test_many_threads(self, opened):
        """Nothing is lost, nothing raises."""
        memory = opened()
        threads = [
            threading.Thread(
                target=lambda number=number: [
                    run(memory, shell(f"job {number}", output="done"), intent="work") for _ in range(5)
                ]
            )
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        memory.flush()
        assert memory.stats()["records"] == 40
        assert "session.capture_errors" not in memory.stats()


class TestStore:
    """The store survives, and says what is wrong with it."""

    def test_reopened(self, opened):
        """What one object recorded another recalls; the second finds nothing left to do."""
        first = opened()
        run(first, shell("make test", fails="3 tests failed"), intent="run the tests")
        first.close()
        assert opened().recall("run the tests")

    def test_another_model_is_refused(self, opened, offline_embeddings):
        """The error names the command that mends it, and nothing is lost."""
        first = opened()
        first.remember("the port is 6543")
        first.close()
        with pytest.raises(EmbeddingMismatchError, match="reembed"):
            opened(embeddings=Reversed(offline_embeddings))
        assert opened().recall("which port is it")

    def test_reembedded(self, opened, folder, offline_embeddings):
        """After re-embedding the other model is welcome, and the first is refused."""
        first = opened()
        first.remember("the port is 6543")
        first.close()
        assert HermesMemory.reembed(folder, embeddings=Reversed(offline_embeddings), progress=False) == 1
        other = opened(embeddings=Reversed(offline_embeddings))
        assert other.recall("which port is it")[0].signals["meaning"] > 0
        other.close()
        with pytest.raises(EmbeddingMismatchError):
            opened()

    def test_reembedding_nothing_is_an_error(self, tmp_path):
        """A wrong path is no new store."""
        with pytest.raises(StoreError, match="no memory"):
            HermesMemory.reembed(tmp_path)

    def test_a_lost_index_is_built_again(self, opened, folder):
        """Without its Chroma folder the store opens, and everything is found by meaning again."""
        first = opened()
        first.remember("the orders database listens on 6543")
        first.close()
        shutil.rmtree(folder / "chroma")
        again = opened()
        again.flush()
        assert again.recall("which port do orders use")[0].signals["meaning"] > 0

    def test_a_damaged_index_is_set_aside(self, opened, folder):
        """Garbage in place of Chroma's database: kept under another name, and built again."""
        first = opened()
        first.remember("the orders database listens on 6543")
        first.close()
        (folder / "chroma" / "chroma.sqlite3").write_bytes(b"not a database" * 500)
        again = opened()
        again.recall("port")
        again.flush()
        assert again.recall("which port do orders use")[0].signals["meaning"] > 0
        assert list(folder.glob("chroma.damaged-*"))

    def test_a_damaged_ledger_is_an_error(self, opened, folder):
        """It is left as it was."""
        opened().close()
        file = folder / "ledger.db"
        for side in folder.glob("ledger.db-*"):
            side.unlink()
        file.write_bytes(b"garbage " * 1_000)
        with pytest.raises(StoreDamagedError):
            opened()
        assert file.read_bytes() == b"garbage " * 1_000

    def test_forgotten_is_gone(self, memory, folder):
        """Out of recall, out of the index."""
        handle = memory.remember("the code is 4711")
        memory.flush()
        assert memory.forget(handle) == [handle]
        assert not memory.recall("what is the code")
        assert memory.stats()["memories"] == 0

    def test_exit_without_close_loses_nothing(self, folder, opened):
        """A process that just ends leaves every committed record."""
        script = (
            "import sys; from langchain_hermes_memory import HermesMemory, OfflineEmbeddings\n"
            "memory = HermesMemory(sys.argv[1], embeddings=OfflineEmbeddings())\n"
            "[memory.remember(f'fact number {n}') for n in range(20)]\n"
        )
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-c", script, str(folder)], check=True, env=environment, timeout=300)
        again = opened()
        again.flush()
        assert (again.stats()["records"], again.stats()["pending"]) == (20, 0)


WRITER = """
import sys
from langchain_hermes_memory import HermesMemory, OfflineEmbeddings
memory = HermesMemory(sys.argv[1], embeddings=OfflineEmbeddings())
for number in range(25):
    memory.remember(f"the {sys.argv[2]} service listens on port {6000 + number}")
assert memory.recall(f"on which port is the {sys.argv[2]} service")
memory.close()
"""


class TestProcesses:
    """Several processes on one folder."""

    def start(self, folder, *arguments, code=WRITER):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen([sys.executable, "-c", code, str(folder), *arguments], env=environment)

    def test_four_writers_lose_nothing(self, folder, opened):
        """All records are there, and all are found by meaning in the end."""
        writers = [self.start(folder, name) for name in ("billing", "mail", "search", "login")]
        assert [writer.wait(300) for writer in writers] == [0, 0, 0, 0]
        memory = opened()
        assert memory.flush()
        assert memory.stats()["records"] == 100
        assert memory._engine._indexer.index.count(memory.namespace) == 100

    def test_one_indexes_for_all(self, folder, opened, offline_embeddings, clock):
        """The second leaves what it records to the first, and finds it by words meanwhile."""
        first, second = opened(), opened()
        first.remember("the orders database listens on 6543")
        assert first.flush()
        second.remember("the customer database listens on 7777")
        assert not second.flush()
        assert second.recall("customer database port")
        assert first.flush()

    def test_much_that_waits_for_another_process(self, opened):
        """What matches by words is compared by meaning, however much was recorded since."""
        first, second = opened(), opened()
        first.remember("the orders database listens on 6543")
        assert first.flush()
        for service in ("billing", "mail", "search", "login"):
            for number in range(25):
                second.remember(f"the {service} service listens on port {6000 + number}")
        found = second.recall("on which port is the billing service")
        assert "billing" in found[0].memory.record.original_command

    def test_a_killed_writer_loses_no_committed_record(self, folder, opened):
        """Whatever was recorded before the kill is there and indexed after opening."""
        code = WRITER.replace("range(25)", "range(100_000)")
        writer = self.start(folder, "billing", code=code)
        ledger = folder / "ledger.db"
        while not ledger.exists() or _records(ledger) < 60:
            assert writer.poll() is None
            time.sleep(0.05)
        writer.kill()
        writer.wait()
        kept = _records(ledger)
        memory = opened(clock=utc_now)
        memory.flush()
        assert memory.stats()["records"] == kept
        assert memory.stats()["pending"] == 0
        assert memory.recall("on which port is the billing service")


def _records(ledger):
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        try:
            return connection.execute("SELECT count(*) FROM records").fetchone()[0]
        except sqlite3.OperationalError:
            return 0


class TestConfiguration:
    """Errors that say what to do."""

    def test_a_setting_out_of_range(self, tmp_path, offline_embeddings):
        """Named, with its range."""
        with pytest.raises(ConfigurationError, match="budget_tokens"):
            HermesMemory(tmp_path, embeddings=offline_embeddings, budget_tokens=3)

    def test_what_is_no_embedding_model(self, tmp_path):
        """Said at once, not at the first record."""
        with pytest.raises(ConfigurationError, match="not str"):
            HermesMemory(tmp_path, embeddings="all-MiniLM-L6-v2")

    def test_settings_and_single_ones(self, tmp_path, offline_embeddings):
        """One or the other."""
        with pytest.raises(ConfigurationError, match="not both"):
            HermesMemory(tmp_path, embeddings=offline_embeddings, settings=Settings(), k=3)

    def test_settings_beside_the_store(self, folder, offline_embeddings):
        """`open` reads hermes.toml in the folder of the store; arguments win."""
        folder.mkdir()
        (folder / "hermes.toml").write_text("k = 7\nlanguage = 'zh'\n", "utf-8")
        with HermesMemory.open(folder, embeddings=offline_embeddings, language="en") as memory:
            assert (memory.settings.k, memory.settings.language) == (7, "en")

    def test_an_unknown_handle(self, memory):
        """Asked for by a wrong name."""
        for handle in ("M99", "foo", 99):
            with pytest.raises(ConfigurationError, match="no memory"):
                memory.memory(handle)

    def test_nothing_to_remember(self, memory):
        """An empty note is a mistake."""
        with pytest.raises(ConfigurationError, match="empty"):
            memory.remember("  ")


class TestExplain:
    """Why a memory was shown or not, and why it is what it is."""

    def test_a_query(self, memory):
        """Every candidate, with what made its score and why it is out."""
        run(memory, shell("make", fails="Permission denied"), intent="build the project")
        memory.remember("the cat is called Tom")
        found = memory.explain("build the project").to_dict()["candidates"]
        assert [bool(each["dropped"]) for each in found] == [False, True]
        assert found[0]["signals"]["meaning"] > 0
        assert {"importance"} <= {factor["name"] for factor in found[0]["factors"]}
        assert "not shown: relevance" in str(memory.explain("build the project"))
        assert memory.explain("build the project")._repr_html_().startswith("<table>")

    def test_a_memory(self, memory):
        """Evidence of the outcome, reasons of the importance, limits."""
        run(memory, shell("make", fails="bash: make: Permission denied"), intent="build")
        handle = memory.recall("make the build")[0].memory.handle
        found = memory.explain(handle).to_dict()
        assert (found["status"], found["category"]) == ("failure", "permission")
        assert found["evidence"]
        assert sum(reason["points"] for reason in found["reasons"]) == found["importance"]
        assert "permission" in found["caveats"]
        assert handle in str(memory.explain(handle))
        assert "<td>importance</td>" in memory.explain(handle)._repr_html_()


def test_feedback_moves_a_memory(memory):
    """Helpful goes up, misleading goes down, both by little."""
    handle = memory.remember("deploy with make deploy")
    before = memory.recall("how to deploy")[0].score
    memory.rate(handle, helpful=False)
    assert 0.8 * before < memory.recall("how to deploy")[0].score < before


def test_the_last_turns(memory, clock):
    """Working memory: the session's turns, oldest first, and no others."""
    for session, request in (("a", "hello"), ("b", "other"), ("a", "how are you")):
        config = {"callbacks": [memory.callback], "metadata": {"session_id": session}}
        RunnableLambda(lambda _: {"output": "fine"}).invoke({"input": request}, config)
        clock.advance(minutes=1)
    text = memory.scoped(session_id="a").working_memory()
    assert text == "User: hello\nAssistant: fine\nUser: how are you\nAssistant: fine"

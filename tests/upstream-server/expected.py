"""A plugin of pytest: holds llama-server's own tests against the outcomes in `results.json`.

Tests that are `not_applicable` are not run: each entry there is the beginning of their names, with the reason.
Of the others, those in `passed` must pass, and those in `failed` (with the reason) may not: one that passes
after all, or that is not listed, ends the run with an error, too, so that the list stays true.
HEXFLASH_RESULTS=new writes the list anew, with the reasons that it has.
"""

import json
import os
import sys
import types
from pathlib import Path

import pytest
from requests.structures import CaseInsensitiveDict

RESULTS = Path(__file__).parent / "results.json"
KNOWN = json.loads(RESULTS.read_text())
UNEXPLAINED = "not looked at yet"

# The tests fetch models and pictures by it. Nothing is fetched here.
sys.modules["wget"] = types.ModuleType("wget")


def is_foreign(name: str) -> bool:
    return any(name.startswith(foreign) for foreign in KNOWN["not_applicable"])


def pytest_ignore_collect(collection_path, config):
    """Files of which no test applies are not read: they import what is not installed."""
    name = collection_path.relative_to(config.rootpath).as_posix()
    return True if collection_path.suffix == ".py" and name in KNOWN["not_applicable"] else None


def pytest_collection_modifyitems(config, items):
    import utils

    # It would start each of the servers once, to fetch its model.
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    # Names of headers may be written in any case, which the tests do not know.
    request = utils.ServerProcess.make_request

    def make_request(*arguments, **named):
        answer = request(*arguments, **named)
        answer.headers = CaseInsensitiveDict(answer.headers)
        return answer

    utils.ServerProcess.make_request = make_request
    foreign = [item for item in items if is_foreign(item.nodeid)]
    config.hook.pytest_deselected(items=foreign)
    items[:] = [item for item in items if not is_foreign(item.nodeid)]


class Outcomes:
    """What has become of each test."""

    def __init__(self):
        self.passed, self.failed, self.skipped = set(), set(), set()

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.skipped:
            self.skipped.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def complaints(self) -> list[str]:
        """Where the list is not true."""
        passed, failed = set(KNOWN["passed"]), set(KNOWN["failed"])
        found = [f"failed, and passed before: {name}" for name in sorted(self.failed & passed)]
        found += [f"passes now; list it as passed: {name}" for name in sorted(self.passed & failed)]
        found += [f"is not listed: {name}" for name in sorted((self.passed | self.failed) - passed - failed)]
        return found

    def write(self):
        KNOWN["passed"] = sorted(self.passed)
        KNOWN["failed"] = {name: KNOWN["failed"].get(name, UNEXPLAINED) for name in sorted(self.failed)}
        RESULTS.write_text(json.dumps(KNOWN, indent=1, ensure_ascii=False) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workerinput"):
            return
        if os.environ.get("HEXFLASH_RESULTS") == "new":
            self.write()
        ran_all = not session.config.option.keyword and len(session.config.args) == 1
        missing = set(KNOWN["passed"]) - self.passed - self.failed if ran_all else set()
        found = self.complaints() + [f"is listed as passed, and was not run: {name}" for name in sorted(missing)]
        session.exitstatus = 1 if found else 0
        self.found = found

    def pytest_terminal_summary(self, terminalreporter):
        for line in self.found:
            terminalreporter.write_line(line, red=True)
        counts = f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped themselves"
        terminalreporter.write_line(f"llama-server's tests: {counts}, as listed: {not self.found}")


def pytest_configure(config):
    config.pluginmanager.register(Outcomes(), "outcomes")

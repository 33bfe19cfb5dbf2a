import json
from pathlib import Path

from worker.delivery import describe


def test_the_summary_says_what_was_measured_on_what_and_whether_all_of_it(tmp_path: Path) -> None:
    """Texts and missing tasks are known without a download; the spec is not repeated."""
    told = {"evaluation": {"dataset": "own"}, "corpora": {"ptb": {"windows": 4}}, "tasks_complete": False}
    (tmp_path / "ghosted.json").write_text(json.dumps({**told, "spec": {"secret": "path"}}))
    assert describe(tmp_path, lambda: None).summary == told

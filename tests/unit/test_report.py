import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.repocard import metadata_load

from ghosted_core.checkpoint.card import model_card
from ghosted_core.checkpoint.licence import source_licence
from ghosted_core.checkpoint.manifest import Manifest, read_manifest
from ghosted_core.checkpoint.source import ModelSource
from ghosted_core.drawing import HEIGHT, WIDTH, bars, curve
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.recorder import NullRecorder
from ghosted_core.report import spectrum
from ghosted_core.report_html import report_html, report_json
from ghosted_core.spec import LocalModel
from tests.jobs import tiny_spec

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}\x00\u202e'\" | x |"


class Elements(HTMLParser):
    """All elements of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def folder(tiny_folder: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with two cuts."""
    path = tmp_path_factory.mktemp("reported")
    spec = tiny_spec(tiny_folder, text_file, strategy="shortgpt", layers=2)
    return compress(spec, RunOptions(out=path / "out", cache=path / "cache"), NullRecorder()).path


@pytest.fixture(scope="module")
def manifest(folder: Path) -> Manifest:
    return read_manifest(folder)


def test_tasks_that_crashed_are_told_of(manifest: Manifest) -> None:
    """In the report and on the card; where all ran, or none was asked for, nothing is said."""
    crashed = manifest.model_copy(update={"tasks_complete": False})
    for told in (report_html, model_card):
        assert "not all ran" in told(crashed)
        assert "not all ran" not in told(manifest)
    assert "tasks_complete" not in manifest.model_dump_json()
    assert Manifest.model_validate_json(crashed.model_dump_json()).tasks_complete is False


def hostile(manifest: Manifest) -> Manifest:
    """The same, with the worst that a model or a user may say in every text."""
    source = {"reference": {"kind": "hub", "id": HOSTILE}, "commit": HOSTILE, "licence": HOSTILE}
    return manifest.model_copy(
        update={
            "generations": {variant: {HOSTILE: HOSTILE} for variant in manifest.generations},
            "source": manifest.source.model_copy(update=source),
            "evaluation": {**(manifest.evaluation or {}), "dataset": HOSTILE, HOSTILE: HOSTILE},
            "details": {name: {**detail, "dataset": HOSTILE} for name, detail in manifest.details.items()},
            "versions": {HOSTILE: HOSTILE},
        }
    )


def test_the_page_runs_and_loads_nothing(manifest: Manifest) -> None:
    """No script, no handler, no address, whatever texts say; and it forbids both to the browser."""
    for page in (report_html(manifest), report_html(hostile(manifest))):
        elements = Elements(page).found
        assert {"script", "img", "link", "iframe", "object"}.isdisjoint(tag for tag, _ in elements)
        attributes = {name for _, attrs in elements for name in attrs}
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.isdisjoint({"src", "href", "xlink:href"})
        assert "default-src 'none'" in page
        assert page.count("{{ 7 * 7 }}") == page.count("alert(1)")


def test_hostile_texts_change_no_element(manifest: Manifest) -> None:
    """The page has the same elements as with harmless texts in their places."""
    texts = json.dumps(hostile(manifest).model_dump(mode="json"))
    harmless = json.loads(texts.replace(json.dumps(HOSTILE)[1:-1], "x"))
    plain = Manifest.model_validate(harmless)
    tags = [[tag for tag, _ in Elements(report_html(one)).found] for one in (plain, hostile(manifest))]
    assert tags[0] == tags[1]
    assert "\x00" not in report_html(hostile(manifest))
    assert "\u202e" not in report_html(hostile(manifest))


def test_the_page_has_all_parts(folder: Path, manifest: Manifest) -> None:
    """Scores, removed layers, metrics, fits with spectra, texts: as written with the checkpoint."""
    page = (folder / "report.html").read_text()
    tags = [tag for tag, _ in Elements(page).found]
    assert tags.count("svg") == 1 + len(manifest.operators)
    assert tags.count("rect") == len(manifest.plan.scores["candidates"])
    for said in ("perplexity", "kl", "distinct_2", "Removed layers", "Singular values", "corpus.txt"):
        assert said in page


def test_the_json_says_the_same(folder: Path, manifest: Manifest) -> None:
    """Valid JSON without infinities; metrics as rows with errors, windows and joining."""
    document = json.loads((folder / "report.json").read_text(), parse_constant=pytest.fail)
    assert document == json.loads(report_json(manifest))
    (first, *_) = document["rows"]
    assert first["metric"] == "perplexity"
    assert first["values"]["dense"] == manifest.metrics["perplexity_dense"]
    assert {"windows", "joint", "fingerprint", "standard_error_nll"} <= first["details"]["dense"].keys()
    assert document["fits"][0]["spectrum"]["rank"][0] == 1
    assert {"report.html", "report.json"} <= manifest.files.keys()


def test_the_card_is_one_that_the_hub_reads(manifest: Manifest, tmp_path: Path) -> None:
    """Its metadata are valid YAML: base model, licence and the checkpoint's own figures."""
    source = manifest.source.model_copy(
        update={"reference": {"kind": "hub", "id": "owner/name"}, "licence": "apache-2.0"}
    )
    (tmp_path / "README.md").write_text(model_card(manifest.model_copy(update={"source": source})))
    metadata: Any = metadata_load(tmp_path / "README.md")
    assert (metadata["base_model"], metadata["license"]) == ("owner/name", "apache-2.0")
    results = metadata["model-index"][0]["results"]
    values = {metric["name"]: metric["value"] for result in results for metric in result["metrics"]}
    assert values["perplexity"] == manifest.metrics["perplexity_repaired"]
    assert values["kl"] == manifest.metrics["kl_repaired"]


def test_a_hostile_name_stays_a_name_in_the_card(manifest: Manifest, tmp_path: Path) -> None:
    """It neither ends the metadata nor adds a row to the table."""
    (tmp_path / "README.md").write_text(model_card(hostile(manifest)))
    metadata: Any = metadata_load(tmp_path / "README.md")
    known = {"base_model", "library_name", "license", "pipeline_tag", "tags", "model-index"}
    assert set(metadata) <= known
    rows = [line for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {5}


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlicense: apache-2.0\n---\n", "apache-2.0"),
        ("---\nlicense: [mit]\n---\n", "other"),
        ("---\nlicense: 'x\\n---\\nbase_model: evil'\n---\n", "other"),
        ("---\n{ not: yaml\n---\n", "other"),
        ("---\n- a list\n---\n", "other"),
        ("no metadata", "other"),
        (None, "other"),
    ],
)
def test_the_licence_is_what_the_sources_card_says(card: str | None, expected: str, tmp_path: Path) -> None:
    """An identifier or nothing; beside a licence file, "other" stands for what the card does not say."""
    source = ModelSource(LocalModel(path=str(tmp_path)), tmp_path, "directory", None, "")
    assert source_licence(source) is None
    (tmp_path / "LICENSE.txt").write_text("Do what you like.")
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    found = source_licence(source)
    assert found is not None
    assert (found.name, found.file) == (expected, "LICENSE.txt")


def test_the_spectrum_is_that_of_the_operator(generator: torch.Generator) -> None:
    """All singular values of a small one; of a large one the first, the last and some between."""
    small = torch.randn(8, 8, generator=generator, dtype=torch.float64)
    found = spectrum(small)
    assert found["singular_value"][0] == pytest.approx(float(torch.linalg.matrix_norm(small, 2)))
    large = spectrum(torch.diag(torch.arange(300, 0, -1, dtype=torch.float64)))
    assert (large["rank"][0], large["rank"][-1]) == (1, 300)
    assert len(large["rank"]) <= 128
    assert [301 - rank for rank in large["rank"]] == large["singular_value"]


def test_charts_stay_inside_their_frame() -> None:
    """Also of one candidate, of equal scores, and of a spectrum that ends in zero."""
    for values in ([(3, 0.5)], [(0, -1.0), (1, -1.0)], [(0, 1e-9), (1, 0.99), (2, 1.0)]):
        for bar in bars(values, marked={1}, title="").bars:
            assert bar.x >= 0
            assert bar.x + bar.width <= WIDTH
            assert bar.y >= 0
            assert bar.y + bar.height <= HEIGHT
    drawn = curve([1, 2, 3], [4.0, 1.0, 0.0])
    assert drawn is not None
    assert len(drawn.points.split()) == 2
    assert curve([1, 2], [0.0, 0.0]) is None

"""The client's values beside the service's description of itself."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from ghosted_client import holdings, models

DOCUMENT = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]
# Ours, and the service's name of it.
PAIRS = {
    models.Job: "JobRead",
    models.Progress: "ProgressRead",
    models.Failure: "FailureRead",
    models.JobPage: "JobPage",
    models.Event: "EventRead",
    models.EventPage: "EventPage",
    models.LogTail: "LogTail",
    models.LogLine: "LogLine",
    models.Metric: "MetricRead",
    models.Artifact: "ArtifactRead",
    models.ArtifactFile: "FileRead",
    holdings.Method: "MethodRead",
    models.Validation: "ValidationRead",
    models.ModelSizes: "ModelSizes",
    models.LayerChoice: "LayerChoice",
    models.MemoryNeeded: "MemoryNeeded",
    models.DiskNeeded: "DiskNeeded",
    models.TimeNeeded: "TimeNeeded",
    models.Needs: "NeedsRead",
    models.Caution: "WarningRead",
    holdings.Upload: "UploadRead",
    holdings.UploadBegun: "UploadBegun",
    holdings.KnownModel: "ModelRead",
    holdings.KnownDataset: "DatasetRead",
    holdings.Origin: "OriginRead",
    holdings.Worker: "WorkerRead",
    holdings.Device: "DeviceRead",
    holdings.Running: "RunningRead",
    models.Snippet: "SnippetRead",
}


@pytest.mark.parametrize(("kind", "name"), PAIRS.items(), ids=PAIRS.values())
def test_what_the_client_needs_the_service_promises(kind: type[BaseModel], name: str) -> None:
    """Each field exists; one without a default is always there, and may be null only if ours may."""
    properties, promised = SCHEMAS[name]["properties"], set(SCHEMAS[name].get("required", ()))
    for field, info in kind.model_fields.items():
        assert field in properties, field
        if info.is_required():
            assert field in promised, field
        if {"type": "null"} in properties[field].get("anyOf", ()):
            assert type(None) in getattr(info.annotation, "__args__", ()), field


def test_every_state_is_known() -> None:
    """The client names the states that the service has."""
    assert list(models.State.__args__) == SCHEMAS["JobState"]["enum"]  # type: ignore[attr-defined]

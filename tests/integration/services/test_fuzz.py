import json
from typing import Any

from hypothesis import HealthCheck, given, settings as run_settings, strategies as st

from tests.integration.services.helpers import Server

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8)
    | st.sampled_from(["owner/tiny", "smollm2-135m-instruct", "ghosted", "explicit", "10" * 200])
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "name", "id", "indices", "ridge", "alias"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
FIELDS = ["model", "strategy", "layers", "recovery", "calibration", "evaluation", "dtype", "labels", "x"]
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3)
LENIENT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@run_settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=LENIENT)
@given(BODIES)
def test_no_body_is_a_fault_of_the_server(server: Server, changes: dict[str, Any]) -> None:
    """Whatever the fields hold, the answer is a job or a problem that says what is wrong."""
    response = server.submit({"model": "owner/tiny", "layers": 2, **changes})
    assert response.status_code in {202, 400, 422}, response.text
    document = response.json()
    json.dumps(document, allow_nan=False)
    if response.status_code != 202:
        assert response.headers["content-type"] == "application/problem+json"
        assert document["detail"]


@run_settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=LENIENT)
@given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/?#%"), max_size=40))
def test_no_path_or_query_is_a_fault_of_the_server(server: Server, text: str) -> None:
    """Ids, cursors and limits that are nothing of the kind are told so."""
    for path in (f"/v1/jobs/{text}", f"/v1/jobs/{text}/events"):
        assert server.request("GET", path).status_code in {200, 307, 404, 405, 422}
    for name in ("after", "limit", "state"):
        assert server.request("GET", "/v1/jobs", params={name: text}).status_code in {200, 422}

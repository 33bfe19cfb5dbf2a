"""Who may look and who may act, with cookies, forms and keys."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest
from playwright.sync_api import expect
from sqlalchemy import func, select, update

from services.auth import logins
from services.auth.repository import revoke_key
from services.auth.scopes import ANYONE
from services.dashboard.urls import local_target
from services.dashboard.user import PLAIN_COOKIE, SAFE_COOKIE, User
from services.db.models import Job, Login
from services.jobs.states import JobState
from tests.dashboard.conftest import Opener, Served
from tests.serving import serve

PAGES = ("/jobs", "/submit", "/compare", "/system")
ACTIONS = ("/submit", "/logout", "/jobs/{id}/cancel", "/jobs/{id}/delete", "/jobs/{id}/retry")


def post(
    served: Served, path: str, cookie: str | None, fields: dict[str, str], **headers: str
) -> httpx2.Response:
    cookies = {} if cookie is None else {PLAIN_COOKIE: cookie}
    return httpx2.post(
        served.url + path, data=fields, cookies=cookies, headers=headers, follow_redirects=False
    )


def token_of(cookie: str) -> str:
    return User(ANYONE, "", cookie).csrf_token


def state_of(served: Served, job_id: UUID) -> str | None:
    with served.database.read() as session:
        return session.scalar(select(Job.state).where(Job.id == job_id))


def test_log_in_and_out(opener: Opener, served: Served) -> None:
    """A wrong key is told so, a good one leads where one wanted to go, and there is a way out."""
    page = opener(login=False).new_page()
    page.goto("/jobs?state=failed")
    page.fill("#key", "ghosted_00000000_nonsense")
    page.click("button.primary")
    expect(page.get_by_role("alert")).to_contain_text("unknown, revoked or past its time")
    page.fill("#key", served.key)
    page.click("button.primary")
    page.wait_for_url("**/jobs?state=failed")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto("/jobs")
    assert page.url.endswith("/login")
    with served.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Login)) == 0


def test_a_login_that_ends_while_the_page_is_open(opener: Opener, served: Served) -> None:
    """The page says so and leads to the login, and from there back to where one was."""
    page = opener().new_page()
    page.goto("/jobs?state=queued")
    with served.database.write() as session:
        session.execute(update(Login).values(expires_at=func.now() - timedelta(seconds=1)))
    page.locator("#notice a").click()
    expect(page.locator(".note")).to_contain_text("Your session has ended")
    page.fill("#key", served.key)
    page.click("button.primary")
    page.wait_for_url("**/jobs?state=queued")


@pytest.mark.parametrize("path", PAGES)
def test_no_page_without_a_login(served: Served, path: str) -> None:
    """Whoever is not logged in is led to the login, a program is answered 401."""
    assert served.get(path).status_code == 303
    assert served.get(path).headers["Location"].startswith("/login")
    assert served.get(f"{path}.json").status_code == 401


def test_the_end_of_a_key_is_the_end_of_its_logins(served: Served) -> None:
    """From the moment a key is revoked nobody is logged in with it."""
    cookie = served.cookie()
    assert served.get("/jobs", cookie).status_code == 200
    with served.database.write() as session:
        assert revoke_key(session, served.key.split("_")[1])
    assert served.get("/jobs", cookie).status_code == 303


def test_a_twin_takes_cookie_and_key(served: Served) -> None:
    """The JSON of a page is for browsers that are logged in and for programs with a key."""
    by_key = served.get("/jobs.json", Authorization=f"Bearer {served.key}")
    assert by_key.status_code == 200
    assert by_key.json() == served.get("/jobs.json", served.cookie()).json()


@pytest.mark.parametrize("path", ACTIONS)
@pytest.mark.parametrize(
    "how", ["no token", "another's token", "another origin", "another site", "no origin"]
)
def test_forms_of_others_are_refused(served: Served, path: str, how: str) -> None:
    """What another site, or another login's page, sends in the user's name does nothing."""
    job_id = served.scene.queued()
    cookie = served.cookie()
    token = {"no token": "", "another's token": token_of(served.cookie())}.get(how, token_of(cookie))
    headers = {
        "another origin": {"Origin": "https://evil.example"},
        "no origin": {"Origin": "null"},
        "another site": {"Sec-Fetch-Site": "cross-site"},
    }.get(how, {})
    fields = {"csrf_token": token, "model": "owner/name", "layers": "2", "confirmed": "yes"}
    answer = post(served, path.format(id=job_id), cookie, fields, **headers)
    assert answer.status_code == 403
    assert "foreign_form" in answer.text
    assert state_of(served, job_id) == JobState.QUEUED
    assert served.get("/jobs", cookie).status_code == 200


def test_a_key_that_may_only_read(served: Served, opener: Opener) -> None:
    """It sees no buttons that change something, and is refused if it sends their forms all the same."""
    cookie = served.cookie(served.new_key("read"))
    shown = served.get("/jobs", cookie)
    assert shown.status_code == 200
    assert "/submit?" not in shown.text
    assert "New job" not in shown.text
    assert served.get("/submit", cookie).status_code == 403
    fields = {"csrf_token": token_of(cookie), "model": "owner/name", "layers": "2"}
    assert post(served, "/submit", cookie, fields).status_code == 403


def test_foreign_jobs_do_not_exist(served: Served) -> None:
    """Another key's job can be neither seen nor touched."""
    job_id = served.scene.queued()
    cookie = served.cookie(served.new_key("read", "submit"))
    fields = {"csrf_token": token_of(cookie), "confirmed": "yes"}
    for path in ("cancel", "delete"):
        assert post(served, f"/jobs/{job_id}/{path}", cookie, fields).status_code == 404
    assert served.get(f"/jobs/{job_id}/delete", cookie).status_code == 404
    assert served.get(f"/submit?from={job_id}", cookie).status_code == 404
    assert served.get("/jobs.json", cookie).json()["rows"] == []
    assert state_of(served, job_id) == JobState.QUEUED


def test_cancel_and_delete(served: Served) -> None:
    """A job is cancelled by its form; to delete it, one is asked once more."""
    job_id = served.scene.queued()
    cookie = served.cookie()
    token = {"csrf_token": token_of(cookie)}
    assert post(served, f"/jobs/{job_id}/cancel", cookie, token).headers["Location"] == f"/jobs/{job_id}"
    assert state_of(served, job_id) == JobState.CANCELLED
    asked = post(served, f"/jobs/{job_id}/delete", cookie, token)
    assert asked.headers["Location"] == f"/jobs/{job_id}/delete"
    assert state_of(served, job_id) == JobState.CANCELLED
    post(served, f"/jobs/{job_id}/delete", cookie, {**token, "confirmed": "yes"})
    assert state_of(served, job_id) is None


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "https://evil.example", "/\\evil.example", "/%09/evil\\", "jobs", "/a\nb", "/a b", ""],
)
def test_a_login_leads_nowhere_else(wanted: str) -> None:
    """What is no path of this service is replaced by the first page."""
    assert local_target(wanted) == "/jobs"


def test_the_cookie_is_for_this_service_only(served: Served) -> None:
    """Scripts cannot read it, other sites do not send it, and behind HTTPS it travels by nothing else."""
    fields = {"key": served.key, "next": "/system"}
    answer = post(served, "/login", None, fields)
    assert answer.headers["Location"] == "/system"
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(answer.headers["Set-Cookie"].split("; "))
    assert served.key not in answer.headers["Set-Cookie"]
    safe = served.settings.model_copy(update={"public_base_url": "https://ghosted.example"})
    with serve(safe) as url:
        told = httpx2.post(f"{url}/login", data=fields, headers={"Origin": "https://ghosted.example"})
    assert told.headers["Set-Cookie"].startswith(f"{SAFE_COOKIE}=")
    assert "Secure" in told.headers["Set-Cookie"]


def test_failed_logins_are_limited(served: Served) -> None:
    """After a few wrong keys from an address the next has to wait; a good one does not."""
    strict = served.settings.model_copy(update={"failed_keys_per_minute": 3})
    with serve(strict) as url:
        answers = [httpx2.post(f"{url}/login", data={"key": "wrong"}) for _ in range(4)]
        good = httpx2.post(f"{url}/login", data={"key": served.key})
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429]
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 60
    assert good.status_code == 303


def test_without_authentication_no_login_is_needed(served: Served) -> None:
    """Where the operator switched keys off, the pages are there at once, still not for other sites' forms."""
    open_to_all = served.settings.model_copy(update={"auth_enabled": False})
    with serve(open_to_all) as url:
        shown = httpx2.get(f"{url}/jobs")
        assert shown.status_code == 200
        assert "Log out" not in shown.text
        assert httpx2.get(f"{url}/login").headers["Location"] == "/jobs"
        fields = {"model": "owner/name", "layers": "2"}
        foreign = httpx2.post(f"{url}/submit", data=fields, headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403
        assert httpx2.post(f"{url}/submit", data=fields, headers={"Origin": url}).status_code == 303


@pytest.mark.parametrize("path", ["/jobs", "/jobs.json", "/login", "/jobs/nothing", "/submit?from=x", "/"])
def test_every_answer_has_safe_headers(served: Served, path: str) -> None:
    """Pages, data, errors and redirects: nothing inline runs, nothing frames them, nothing keeps them."""
    headers = served.get(path, served.cookie()).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy.partition("style-src")[0]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize("path", PAGES)
def test_every_page_names_its_data(served: Served, path: str) -> None:
    """The address in a page's head, and in no other, is that of its twin."""
    named = 'rel="alternate" type="application/json"'
    cookie = served.cookie()
    assert f'{named} href="{path}.json"' in served.get(path, cookie).text
    assert served.get(f"{path}.json", cookie).headers["Content-Type"] == "application/json"
    assert named not in served.get("/login").text + served.get("/jobs/nothing", cookie).text


def test_ended_logins_are_forgotten(served: Served) -> None:
    """The sweeper leaves the logins that still hold, and those only."""
    gone, kept = served.cookie(), served.cookie()
    with served.database.write() as session:
        ended = {"expires_at": func.now() - timedelta(seconds=1)}
        session.execute(update(Login).where(Login.digest == logins.digest_of(gone)).values(ended))
        assert logins.forget_ended(session) == 1
        assert logins.find(session, gone) is None
        assert logins.find(session, kept) is not None


def test_the_cookie_opens_nothing_in_the_database(served: Served) -> None:
    """The table holds no text by which anyone could log in."""
    cookie = served.cookie()
    with served.database.read() as session:
        rows: Any = session.execute(select(Login.__table__)).all()
    assert cookie not in repr(rows)


def test_the_api_takes_no_cookie_and_no_form(served: Served) -> None:
    """A login is for pages: no site can call the API through it."""
    cookie = served.cookie()
    assert served.get("/v1/jobs", cookie).status_code == 401
    answer = post(served, "/v1/jobs", cookie, {"model": "owner/name"}, Authorization=f"Bearer {served.key}")
    assert answer.status_code == 415

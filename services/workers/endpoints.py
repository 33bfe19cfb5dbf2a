"""/v1/workers: parse, call, show."""

from fastapi import APIRouter

from services.dependencies import CurrentAdmin, ReadSession, Tools
from services.jobs.viewer import Viewer
from services.workers.repository import list_workers
from services.workers.schemas import WorkerList, read_worker

router = APIRouter(prefix="/v1/workers", tags=["workers"])


@router.get("")
def list_all_workers(session: ReadSession, caller: CurrentAdmin, tools: Tools) -> WorkerList:
    """The workers: what each one is and has, whether it works, when it was last seen.

    For keys of the scope `admin`. Why a job waits, the job itself says to whoever may read it.
    """
    seen = list_workers(session, lease_seconds=tools.settings.lease_seconds)
    viewer = Viewer(caller.key_id)
    return WorkerList(items=[read_worker(one, viewer) for one in seen])

"""/v1/workers: parse, call, show."""

from fastapi import APIRouter

from services.dependencies import CurrentViewer, ReadSession, Tools
from services.workers.repository import list_workers
from services.workers.schemas import WorkerList, read_worker

router = APIRouter(prefix="/v1/workers", tags=["workers"])


@router.get("")
def list_all_workers(session: ReadSession, viewer: CurrentViewer, tools: Tools) -> WorkerList:
    """The workers: what each one is and has, whether it works, when it was last seen."""
    seen = list_workers(session, lease_seconds=tools.settings.lease_seconds)
    return WorkerList(items=[read_worker(one, viewer) for one in seen])

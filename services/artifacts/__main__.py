"""Makes the bucket of the settings, for installations that start with an empty object store."""

import logging

from services.artifacts.lifecycle import drop_unfinished
from services.artifacts.storage import open_store
from services.config import load_settings


def main() -> None:
    """The bucket exists, and drops unfinished uploads by itself where the store can do that."""
    settings = load_settings()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    store = open_store(settings)
    store.ensure_bucket()
    logging.getLogger(__name__).info("the bucket %s exists", settings.s3_bucket)
    drop_unfinished(store, days=settings.s3_unfinished_days)


if __name__ == "__main__":
    main()

"""What the store does by itself: it drops uploads that nobody finishes."""

import logging
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from services.artifacts.connection import translated
from services.artifacts.storage import ArtifactStore

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import LifecycleRuleOutputTypeDef, LifecycleRuleTypeDef

RULE_ID = "ghosted-unfinished-uploads"
NONE_YET = "NoSuchLifecycleConfiguration"

logger = logging.getLogger(__name__)


def drop_unfinished(store: ArtifactStore, *, days: int) -> bool:
    """The bucket drops unfinished uploads after `days`, beside what its other rules do; whether it can.

    Raises:
        StorageUnavailableError: the store does not answer.
    """
    rule: LifecycleRuleTypeDef = {
        "ID": RULE_ID,
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": days},
    }
    with translated("setting the bucket's lifecycle"):
        try:
            others = [found for found in _rules(store) if found.get("ID") != RULE_ID]
            store.client.put_bucket_lifecycle_configuration(
                Bucket=store.bucket, LifecycleConfiguration={"Rules": [*others, rule]}
            )
        except ClientError as error:
            _explain(error)
            return False
    logger.info("the store drops unfinished uploads after %d days", days)
    return True


def _rules(store: ArtifactStore) -> "list[LifecycleRuleOutputTypeDef]":
    try:
        return store.client.get_bucket_lifecycle_configuration(Bucket=store.bucket)["Rules"]
    except ClientError as error:
        if error.response["Error"].get("Code") == NONE_YET:
            return []
        raise


def _explain(error: ClientError) -> None:
    logger.warning(
        "the store takes no rule that drops unfinished uploads (%s): only the sweeper looks after them",
        error.response["Error"].get("Code"),
    )

"""The embedded S3: SeaweedFS in one process."""

import datetime as dt
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from services.embedded.certificates import Certificate, write_certificate
from services.embedded.credentials import Credentials
from services.embedded.files import make_private, write_private
from services.embedded.ports import LOOPBACK
from services.embedded.process import Command, NotReadyError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "ghosted"
REGION = "us-east-1"
PROBE_KEY = ".ready"
ROLES = ("master", "volume", "filer", "s3")
VOLUME_SIZE_MIB = 1024


@dataclass(frozen=True)
class S3Location:
    """A bucket and what opens it."""

    endpoint: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    bucket: str = BUCKET
    region: str = REGION


@dataclass(frozen=True)
class S3Service:
    """`weed server` with master, volume server, filer and S3 gateway.

    Only the S3 port answers plain requests. HTTP of the others is switched off, because the
    master's has no authentication at all (one GET deletes a bucket), and gRPC asks for a
    certificate that only this process has. The signing keys close what might be left.
    """

    program: Path
    folder: Path
    log: Path
    credentials: Credentials = field(repr=False)
    port_count: int = 2 * len(ROLES)
    timeout_seconds: float = 60.0

    def prepare(self) -> None:
        """The folders exist, and no socket of a killed run is left."""
        make_private(self.folder)
        make_private(self.folder / "data")
        remove_dead_sockets()

    def command(self, ports: Sequence[int]) -> Command:
        """Write the configuration, which holds the keys, and say how to run it.

        `weed` finds `security.toml` and `master.toml` in its working folder. On SIGTERM it waits
        15 s for a connection to itself; what it has acknowledged is already with the kernel, so it
        is killed at once.
        """
        certificate = write_certificate(self.folder, now=dt.datetime.now(dt.UTC))
        write_private(self.folder / "security.toml", security_toml(self.credentials, certificate))
        write_private(self.folder / "master.toml", "[master.volume_growth]\ncopy_1 = 1\n")
        write_private(self.folder / "s3.json", json.dumps(identities(self.credentials)))
        return Command(
            part="S3 (SeaweedFS)",
            arguments=(str(self.program), *server_arguments(ports)),
            folder=self.folder,
            log=self.log,
            # Memory is given back early; under load it may still take more.
            environment={"GOMEMLIMIT": "256MiB"},
        )

    def location(self, ports: Sequence[int]) -> S3Location:
        """Where clients connect, with the keys."""
        keys = self.credentials
        return S3Location(f"http://{LOOPBACK}:{ports[-2]}", keys.s3_access_key, keys.s3_secret_key)

    def probe(self, ports: Sequence[int]) -> None:
        """Make the bucket if it is missing; write an object, read it back, delete it.

        The port answers seconds before the parts behind it have found each other.
        """
        location = self.location(ports)
        client = make_client(location)
        try:
            _round_trip(client, location.bucket)
        except (BotoCoreError, ClientError) as error:
            raise NotReadyError(str(error)) from error
        finally:
            client.close()

    def clean_up(self) -> None:
        """Remove the sockets, in /tmp and in the folder."""
        remove_dead_sockets()
        for path in self.folder.glob("*.sock"):
            path.unlink(missing_ok=True)


def remove_dead_sockets() -> None:
    """Remove the sockets that killed `weed` processes left in /tmp, as far as this user may.

    It puts them there whatever it is told, and on SIGKILL leaves them. One that refuses
    connections has no process behind it.
    """
    for path in Path("/tmp").glob("seaweedfs-*-grpc-*.sock"):  # noqa: S108 - weed's choice
        if _is_dead_and_ours(path):
            path.unlink(missing_ok=True)


def _is_dead_and_ours(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            if os.geteuid() not in {0, path.stat().st_uid}:
                return False
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # Removed meanwhile, or too busy to answer: alive.
    return False


def server_arguments(ports: Sequence[int]) -> tuple[str, ...]:
    """`weed server` on `ports`: for each of ROLES one for HTTP and one for gRPC."""
    listening = []
    for role, http, grpc in zip(ROLES, ports[::2], ports[1::2], strict=True):
        listening += [f"-{role}.port={http}", f"-{role}.port.grpc={grpc}"]
    return (
        "-logtostderr=true",
        "server",
        "-dir=data",
        f"-ip={LOOPBACK}",
        f"-ip.bind={LOOPBACK}",
        *listening,
        "-disableHttp",
        "-filer",
        "-filer.localSocket=filer.sock",
        "-s3",
        "-s3.localSocket=s3.sock",
        "-s3.config=s3.json",
        "-s3.iam=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        # One server elects itself; the state of a former run names ports that are gone.
        "-master.electionTimeout=1s",
        "-master.resumeState=false",
        f"-master.volumeSizeLimitMB={VOLUME_SIZE_MIB}",
        # 0: as many volumes as the disk has room for, each made when it is needed.
        "-volume.max=0",
        "-volume.preStopSeconds=0",
    )


def security_toml(credentials: Credentials, certificate: Certificate) -> str:
    """The signing keys of volume server and filer, and mutual TLS for every gRPC port."""
    keys = {
        "jwt.signing": credentials.volume_write_key,
        "jwt.signing.read": credentials.volume_read_key,
        "jwt.filer_signing": credentials.filer_write_key,
        "jwt.filer_signing.read": credentials.filer_read_key,
    }
    signing = [f'[{section}]\nkey = "{key}"\n' for section, key in keys.items()]
    # Relative to the working folder, so that no path needs quoting.
    pair = f'cert = "{certificate.certificate.name}"\nkey = "{certificate.key.name}"\n'
    tls = [f"[grpc.{role}]\n{pair}" for role in (*ROLES, "client")]
    authority = f'[grpc]\nca = "{certificate.certificate.name}"\n'
    return "\n".join(["[access]\nui = false\n", *signing, authority, *tls])


def identities(credentials: Credentials) -> dict[str, object]:
    """The one user of the S3 gateway."""
    keys = {"accessKey": credentials.s3_access_key, "secretKey": credentials.s3_secret_key}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [{"name": BUCKET, "credentials": [keys], "actions": actions}]}


def make_client(location: S3Location) -> "S3Client":
    """A client that speaks to `location` directly, once per call, in the plain dialect."""
    return boto3.client(
        "s3",
        endpoint_url=location.endpoint,
        aws_access_key_id=location.access_key,
        aws_secret_access_key=location.secret_key,
        region_name=location.region,
        config=Config(
            retries={"total_max_attempts": 1},
            connect_timeout=2,
            read_timeout=10,
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


def _round_trip(client: "S3Client", bucket: str) -> None:
    names = [found.get("Name") for found in client.list_buckets()["Buckets"]]
    if bucket not in names:
        client.create_bucket(Bucket=bucket)
    client.put_object(Bucket=bucket, Key=PROBE_KEY, Body=b"ready")
    if client.get_object(Bucket=bucket, Key=PROBE_KEY)["Body"].read() != b"ready":
        raise NotReadyError("an object came back changed")
    client.delete_object(Bucket=bucket, Key=PROBE_KEY)

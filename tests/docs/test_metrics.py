"""docs/operations/metrics.md lists exactly the metrics that a server exports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trustme
from docs.documents import document
from server.metrics.scrape import get
from servers import free_port, ours

from beanstalkd_py.server.metrics.replication_metrics import replication_metrics
from beanstalkd_py.server.process.messages import ReplicatorStatus


@pytest.mark.costly
def test_every_metric_is_documented(tmp_path: Path) -> None:
    certificate, binlog = tmp_path / "tls.pem", tmp_path / "binlog"
    binlog.mkdir()
    issued = trustme.CA().issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificate))
    port = free_port()
    options = [
        *("-b", str(binlog), "--history", str(tmp_path / "history")),
        *("--metrics", f"127.0.0.1:{port}", "--tls-listen", f"127.0.0.1:{free_port()}"),
        *("--tls-cert", str(certificate), "--tls-key", str(certificate)),
        *("--max-connections", "100", "--max-tubes", "100"),
        *("--max-memory", "1G", "--body-memory", "1G"),
    ]
    schedule = tmp_path / "beanstalkd-py.toml"
    schedule.write_text('[schedule.nightly]\ncron = "0 2 * * *"\ntube = "reports"\n')
    with ours(*options, "--config", str(schedule)):
        text = get(port, "/metrics").text
    exported = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    page = document("docs/operations/metrics.md")
    # Only replicated servers export them.
    replicated = replication_metrics(ReplicatorStatus(epoch=1))
    exported |= {sample.name: one.type for one in replicated for sample in one.samples}
    documented = dict(re.findall(r"^\| `(beanstalkd_\w+)` \| (\w+) \|", page.text, re.MULTILINE))
    assert documented == exported

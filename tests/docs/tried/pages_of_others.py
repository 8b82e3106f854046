"""The pages on auditors, witnesses, notices and the formats of others."""

import json
import re
from base64 import b64encode
from hashlib import sha256

import httpx2
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from lethe.identity import parse
from lethe.signing.keys import generate_key, public_pem
from tests.app.intake.people import Page as Form
from tests.app.intake.people import Visitor
from tests.app.intake.test_asking import sign
from tests.app.protocols.conftest import BUSINESS, DOMAIN, write_processor
from tests.docs.markdown import blocks
from tests.docs.tried import files
from tests.docs.tried.desk import Desk, Page
from tests.docs.tried.pages_of_models import FILE, certificate, erase
from tests.docs.tried.pages_of_people import REGISTER, SITE, learn, register
from tests.e2e.alerts.of_log import is_witnessed
from tests.e2e.harness import Processes, until
from tests.lethe.certificates import test_audit_report as reports
from tests.lethe.certificates.build import issuer_key
from tests.lethe.report.pdfs import MISSING
from tests.workers.cli.test_recheck import CASE
from tests.workers.jobs.desk.test_drop import csv, zipped
from tests.workers.judge.empirical_claims import POLICY
from tests.workers.judge.recheck.cases import MODEL
from workers.judge.policy.document import to_document

ROTATED = "rotated.sigstore.json"  # of the issuer's key after its rotation
RECHECK = "FILE --evidence EVIDENCE --scores SCORES --model MODEL --policy POLICY"


def notices(desk: Desk) -> None:
    learn(desk, "support-intents")
    learn(desk, "credit")
    desk.run("lethe key new --out . --keyid alice")
    register(desk, "alice", "alice.pub.pem")
    desk.run('lethe login "$LETHE_URL" --key alice.pem --keyid alice --no-token')


def witnesses(desk: Desk) -> None:
    files.trusted(desk)
    (desk.directory / "log.vkey").write_bytes((desk.keys / "log.vkey").read_bytes())


def processor(service: Processes) -> None:
    write_processor(service.settings.keys_dir, generate_private_key(65537, 2048))


def protocols(desk: Desk) -> None:
    files.customers(desk)
    desk.run(f"{REGISTER} churn")
    (desk.directory / "phones.csv").write_text("record,phone\nc-1,3012345678\n")
    desk.run("openssl genpkey -algorithm ed25519 -out agent.key")
    desk.run("openssl pkey -in agent.key -pubout -out agent.pem")
    with desk.operator() as operator:
        made = operator.open_case(parse("email=bob@example.org"), "T-1")
        with desk.operator("olga") as officer:
            officer.decide_case(made["ref"], "approve", None)
        until(
            lambda: operator.case(made["ref"])["state"] == "answered",
            "the case",
            desk.service.worker,
        )
    download(desk)


def download(desk: Desk, **more: str) -> None:
    """Write what DROP has to download: a list of addresses, and more lists."""
    people = ["bob@example.org", "nobody@example.org", "jane@example.org"]
    listed = {f"AAAAAAAAAAA{number}": email for number, email in enumerate(people)}
    zipped(desk.directory / "download.zip", Email=csv(listed), **more)


def download_phones(desk: Desk) -> None:
    digest = b64encode(sha256(b"3012345678").digest()).decode()
    download(desk, Phone=f"ID,Hash\nBBBBBBBBBBB1,{digest}\n")


def controller(desk: Desk) -> None:
    token = desk.found(r"^(lethe_\S+)$")
    desk.run(f"export URL={desk.service.base_url} BUSINESS={BUSINESS} TOKEN={token}")


def intake(desk: Desk) -> None:
    """Have a person ask on the page with a code, and save the receipt."""
    files.customers(desk)
    desk.run(f"{REGISTER} churn")
    (desk.directory / "log.vkey").write_bytes((desk.keys / "log.vkey").read_bytes())
    printed = desk.run(
        "lethe intake code --kind email --value jane@example.org --checked passport"
    )
    with httpx2.Client(base_url=desk.service.base_url) as browser:
        visitor = Visitor.__new__(Visitor)  # a browser that calls a real service
        visitor.http, visitor.headers = browser, {"origin": desk.service.base_url}  # type: ignore[assignment]
        form, key = visitor.ask("jane@example.org", proof="operator"), generate_key()
        public, signature = sign(key, Form(form).statement.encode())
        code = printed.split()[0]
        done = Form(visitor.confirm(form, code, key=public, signature=signature))
        receipt = visitor.follow(done.case_code, "/intake/file", file="receipt")
    (desk.directory / "receipt.json").write_bytes(receipt.content)


def policy(desk: Desk) -> None:
    """Write a policy of the page's witness, with which all processes start again."""
    vkey = desk.found(r"^(witness\.example\.org/w1\+\S+)$", 0)
    url = desk.found(r"^witness at (\S+)", 0)
    have_witnessed(desk, f"witness a {vkey} {url}\ngroup one 1 a\nquorum one\n")


def have_witnessed(desk: Desk, quorum: str) -> None:
    """Start all processes again with a policy of witnesses, which is in witness.policy."""
    file = desk.directory / "witness.policy"
    file.write_text(quorum)
    desk.service.kill()
    desk.service.more |= {"LETHE_WITNESS_POLICY": str(file), "LETHE_WITNESS_SECONDS": "1"}
    desk.service.restart()


def witnessed(desk: Desk) -> None:
    learn(desk, "churn")
    certificate(desk, erase(desk, "churn", "record-0000001"), FILE)


def auditor_guide(desk: Desk) -> None:
    """Have a certificate of the issuer's first key, and a witnessed one of its second."""
    files.trusted(desk)
    learn(desk, "churn")
    request = erase(desk, "churn", "record-0000001")
    certificate(desk, request, FILE)
    with desk.operator() as operator:
        (desk.directory / "evidence.json").write_bytes(operator.evidence(request))
        (desk.directory / "churn.safetensors").write_bytes(operator.artifact("churn", 2))
    desk.service.cli("service-key", "rotate", "issuer")
    (desk.directory / "log.vkey").write_bytes((desk.keys / "log.vkey").read_bytes())
    made = desk.run("lethe witness init w1 --name witness.example.org/w1 --log log.vkey")
    ed25519, ml_dsa = re.findall(r"(?m)^witness\.example\.org/w1\+\S+$", made)
    said = desk.shell.start(f"lethe witness serve w1 --port {desk.port}", "witness at")
    (url,) = re.findall(r"witness at (\S+)", said)
    lines = [f"witness a {ed25519} {url}", f"witness b {ml_dsa} {url}", "group both all a b"]
    have_witnessed(desk, "\n".join([*lines, "quorum both", ""]))
    desk.run(f"export LETHE_URL={desk.service.base_url}")
    certificate(desk, erase(desk, "churn", "record-0000002"), ROTATED)
    (desk.directory / "scores.json").write_text("{}")
    (desk.directory / "report.json").write_bytes(reports.file(reports.predicate()))
    (desk.directory / "statistics.json").write_bytes(reports.STATISTICS)
    (desk.directory / "audit.pem").write_text(public_pem(issuer_key().public_key()))
    desk.run("curl -sf $LETHE_URL/v1/log/trust-root > trust-root.json")
    desk.run(f"file={FILE} issuer=trusted/issuer.pem")


def trust_root(desk: Desk) -> None:
    """The key that the auditor had before the rotation is not enough for what came after it."""
    said = desk.run(f"lethe certificate verify {ROTATED} --keys trusted/ || test $? = 1")
    assert said.startswith("NOT AUTHENTIC"), said


def program(desk: Desk) -> None:
    """Run the page's Python too."""
    (text,) = (one for one in blocks("docs/auditor-guide.md", "python") if "verify(" in one)
    (desk.directory / "program.py").write_text(text.replace('"FILE"', f'"{FILE}"'))
    assert desk.run("python3 program.py") == "PASS\nPASS\n"


def cosigned(desk: Desk) -> None:
    """Wait until the witness has cosigned the whole log."""
    url = desk.service.base_url
    until(lambda: is_witnessed(url), "its cosignature", desk.service.worker)


def verdict(desk: Desk) -> None:
    """Write the files of a network's certificate, whose verdict rests on scores."""
    case = {
        "c.json": CASE.bundle(),
        "e.json": CASE.evidence,
        "s.bin": CASE.scores,
        "m.bin": MODEL,
    }
    for name, data in case.items():
        (desk.directory / name).write_bytes(data)
    (desk.directory / "p.json").write_text(json.dumps(to_document(POLICY)))


PAGES = {
    "docs/auditor-guide.md": Page(
        prepare=auditor_guide,
        stands={
            SITE: "{url}",
            "FILE --trust-root": f"{ROTATED} --trust-root",
            RECHECK: "c.json --evidence e.json --scores s.bin --model m.bin --policy p.json",
            "--issuer-key trusted/issuer.pem": "--issuer-key audit.pem",
            "FILE": FILE,
            "EVIDENCE": "evidence.json",
            "SCORES": "scores.json",
            "MODEL": "churn.safetensors",
            "MODEL_REF": "churn",
            "LAST": "3",
        },
        before={
            "lethe certificate verify FILE --trust-root": trust_root,
            "lethe certificate show FILE": program,
            "lethe certificate recheck": verdict,
        },
        who="iris",
        base=True,
        extras=["lethe certificate recheck"],
    ),
    "docs/audit-the-log.md": Page(
        prepare=auditor_guide,
        stands={
            SITE: "{url}",
            "MODEL_REF": "churn",
            "--format pdf": "--format html" if MISSING else "--format pdf",
        },
        before={"lethe log mirror": cosigned},
        serves={"lethe log watch": "size "},
        who="iris",
        base=True,
    ),
    "docs/witnesses.md": Page(
        prepare=witnesses,
        stands={
            SITE: "{url}",
            "7380": "{port}",
            "/etc/lethe/witness.policy": "witness.policy",
            "FILE": FILE,
        },
        before={
            "export LETHE_WITNESS_POLICY": policy,
            "lethe certificate verify": witnessed,
        },
        serves={"lethe witness serve": "witness at"},
    ),
    "docs/intake.md": Page(
        prepare=intake,
        settings={
            "LETHE_DECIDE": "review",
            "LETHE_INTAKE": "true",
            "LETHE_SMTP_URL": "smtp+plain://127.0.0.1:9",
            "LETHE_MAIL_FROM": "privacy@example.org",
        },
        stands={"lethe serve": "lethe serve --port {port}"},
        serves={"lethe serve": "serving http"},
        typed={"lethe intake code": "4711\n"},
    ),
    "docs/notices.md": Page(
        prepare=notices,
        settings={"LETHE_WEBHOOK_ALLOW": "127.0.0.1", "LETHE_CALLBACK_ALLOW": "127.0.0.1"},
        stands={
            "https://hooks.example.org": "https://127.0.0.1:9443",
            "https://requester.example": "https://127.0.0.1:9443",
        },
    ),
    "docs/protocols.md": Page(
        install=processor,
        prepare=protocols,
        settings={
            "LETHE_DECIDE": "review",
            "LETHE_OPENDSR_DOMAIN": DOMAIN,
            "LETHE_DRP_BUSINESS_ID": BUSINESS,
            "LETHE_OPENDSR_IDENTITIES": "email=email",
        },
        stands={
            "https://erasure.example": "{url}",
            "johndoe@example.com": "jane@example.org",
        },
        before={
            "lethe person import phones.csv": download_phones,
            'curl -sS "$URL/dsr/discovery"': controller,
        },
        exits={
            "lethe drop process download.zip --out responses": [1],
            "lethe drop process download.zip --out responses --dry-run": [0],
        },
    ),
}

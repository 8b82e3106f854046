"""A certificate as a page: its content, its checks with their intervals, its files."""

from hashlib import sha256

from fastapi import Request, Response

from app.api.documents import page_policy
from app.api.http.deps import ServicesDep
from app.api.http.pages import attachment
from app.api.http.parsing import ParsingDep
from app.console import plots
from app.console.render import language_of, render
from app.console.route import router
from app.console.session import SignedIn
from app.problems import NotFoundError
from app.service.context import Services
from app.service.issued import certificates, documents
from app.service.issued.retraining import Retraining, last_retraining
from app.service.models import registry
from app.service.requests import id_of
from lethe.certificates.cost import cost_of
from lethe.certificates.statement import Predicate
from lethe.report.certificate import Sheet, curve_plots, curves
from lethe.words.certificate import in_words, untested
from lethe.words.texts import texts

routes = router()
DOWNLOADS = {
    "bundle": ("application/vnd.dev.sigstore.bundle.v0.3+json", "sigstore.json"),
    "pdf": ("application/pdf", "pdf"),
    "html": ("text/html; charset=utf-8", "html"),
}


@routes.get("/certificates/{ref}", operation_id="consoleCertificate")
def page(ref: str, request: Request, services: ServicesDep, visitor: SignedIn) -> Response:
    """Show the certificate of a request, by the request's public reference."""
    file = certificates.bundle(services, id_of(services, ref))
    verdict = certificates.verify(services, file, None, None)
    sheet = Sheet.of(file, verdict)
    predicate, own = sheet.statement.predicate, texts(language_of(request))
    measured = _measured(services, predicate)
    return render(
        request,
        "certificate.html",
        ref=ref,
        sheet=sheet,
        predicate=predicate,
        verdict=verdict,
        words=in_words(predicate, own),
        untested=list(untested(predicate, own)),
        checks=[(one, plots.interval(one)) for one in predicate.checks],
        span=(plots.SPAN, plots.SPAN_HEIGHT),
        measured=measured,
        attacks=plots.attacks(predicate.checks),
        cost=cost_of(predicate),
        retraining=_retraining(services, predicate),
        curves=curve_plots(curves(predicate), own),
        curves_lead=own.of("report", "curves_lead"),
        curve_below=own.of("report", "curve_below"),
        digest=sha256(file).hexdigest(),
    )


def _retraining(services: Services, predicate: Predicate) -> Retraining | None:
    """Return the last retraining of the model, if this certificate states none."""
    stated = cost_of(predicate).retraining is not None
    return None if stated else last_retraining(services, predicate.model.ref)


def _measured(
    services: Services, predicate: Predicate
) -> list[tuple[str, str, str, float | None]]:
    """Return (side, metric, value, bar's length) of the versions before and after.

    The versions are found by the certificate's digests, the values measured on held-out rows.
    """
    model, found = predicate.model, []
    with services.reading() as session:
        for side, digest in (
            ("before", model.version_before.digest),
            ("after", model.version_after.digest),
        ):
            shown = registry.version_of_digest(services, session, model.ref, digest)
            figure = None if shown is None else shown.held_out
            if figure is not None and figure.metric is not None and figure.value is not None:
                value = plots.number(figure.value)
                is_share = value is not None and 0 <= value <= 1
                found.append((side, figure.metric, figure.value, value if is_share else None))
    return found


@routes.get("/certificates/{ref}/{form}", operation_id="consoleCertificateFile")
async def download(
    ref: str,
    form: str,
    request: Request,
    services: ServicesDep,
    turns: ParsingDep,
    visitor: SignedIn,
) -> Response:
    """Download the certificate's file, or the certificate as a document for people."""
    language = language_of(request)

    def made() -> bytes:
        identity = id_of(services, ref)
        if form == "bundle":
            return certificates.bundle(services, identity)
        write = documents.pdf if form == "pdf" else documents.html
        return write(services, identity, language)

    if form not in DOWNLOADS:
        raise NotFoundError("a certificate is downloaded as bundle, pdf or html")
    data = await turns.parse(made)
    kind, ending = DOWNLOADS[form]
    headers = attachment(f"certificate.{ending}")
    if form == "html":
        headers = {"content-security-policy": page_policy()}
    return Response(data, media_type=kind, headers=headers)

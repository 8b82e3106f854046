"""/intake: request a code, prove the identity with it, and get the case."""

from fastapi import Request, Response

from app.api.http.attempts import HOUR, Bound, Limits, client_of, of_client
from app.api.http.deps import ServicesDep
from app.intake.fields import kinds_of, request_in, signature_in
from app.intake.following import case_page
from app.intake.forms import IntakeForm, Posted, address_of
from app.intake.render import chosen, language_of, render, words
from app.intake.route import BY_CLIENT, BY_IDENTITY, CODES, TRIES, router
from app.notices.mail import MailError, Message, is_configured, send
from app.service.context import Services
from app.service.intake import challenge
from app.service.intake.errors import IntakeCodeError, IntakeExpiredError, IntakeIdentityError
from app.service.intake.opening import confirm as open_confirmed
from app.service.intake.request import BY_MAIL, IntakeRequest, statement_of
from lethe.certificates.intake_receipt import statement_bytes
from lethe.identity import normalise

routes = router()
LONGEST_CODE = 60  # characters


def limits_of(request: Request) -> Limits:
    """Return the counts of this process."""
    limits: Limits = request.app.state.intake_limits
    return limits


@routes.get("", operation_id="intakePage")
def page(request: Request, services: ServicesDep) -> Response:
    """Show the form for an address."""
    settings = services.settings
    return render(request, "ask.html", kinds=kinds_of(settings), mails=is_configured(settings))


@routes.post("/ask", operation_id="intakeAsk")
def ask(request: Request, services: ServicesDep, form: Posted) -> Response:
    """Send a code to the address; the answer is the same for every address."""
    request.state.language = chosen(form.of("language"))
    asked = request_in(form, services.settings)
    person = f"{asked.kind}={normalise(asked.kind, asked.value)}"
    if not challenge.is_known(services, form.nonce):
        limits_of(request).take(
            *of_client(BY_CLIENT, client_of(request)),
            (BY_IDENTITY, person),
            (Bound("total", services.settings.intake_hourly, HOUR, kept=True), ""),
        )
        code = challenge.ask(services, form.nonce, form.session, asked)
        if code:
            _mail(request, services, form.nonce, asked, code)
    return _code_page(request, services, form.nonce)


def _mail(
    request: Request, services: Services, ref: str, asked: IntakeRequest, code: str
) -> None:
    # The code proves control of this address, but the case is for the normalised one.
    if asked.value != normalise(asked.kind, asked.value) or not asked.value.isascii():
        raise IntakeIdentityError("the address that is mailed is not the one that is erased")
    texts = words(language_of(request))
    text = texts.of("mail", "text", code=f"{code[:4]} {code[4:]}").strip() + "\n"
    try:
        send(services.settings, Message(asked.value, texts.of("mail", "subject"), text))
    except MailError:
        challenge.cancel(services, ref)
        raise


def _code_page(
    request: Request, services: Services, ref: str, status: int = 200, left: int | None = None
) -> Response:
    asked, expires = challenge.waiting(services, ref)
    statement = statement_of(
        services.root_secret, ref, asked, expires, address_of(request, services)
    )
    return render(
        request,
        "code.html",
        status,
        challenge=ref,
        by_mail=asked.proven == BY_MAIL,
        statement=statement_bytes(statement).decode(),
        left=left,
    )


@routes.post("/confirm", operation_id="intakeConfirm")
def confirm(request: Request, services: ServicesDep, form: Posted) -> Response:
    """Open the case for the holder of the code. Sent again, the form shows the same case."""
    request.state.language = chosen(form.of("language"))
    ref = form.of("challenge")
    if len(ref) != 32 or len(form.of("code")) > LONGEST_CODE or not form.of("code").isascii():
        raise challenge.expired()
    limits, client = limits_of(request), client_of(request)
    limits.check(*of_client(CODES, client))
    limits.take((TRIES, ref))
    try:
        case = open_confirmed(
            services,
            ref,
            form.session,
            form.of("code"),
            signature_in(form),
            address_of(request, services),
        )
    except IntakeExpiredError:
        limits.take(*of_client(CODES, client))
        raise
    except IntakeCodeError as error:
        limits.take(*of_client(CODES, client))
        return _again(request, services, form, error)
    return case_page(request, services, case, received=True)


def _again(
    request: Request, services: Services, form: IntakeForm, error: IntakeCodeError
) -> Response:
    left = error.members["left"]
    assert isinstance(left, int)
    return _code_page(request, services, form.of("challenge"), error.status, left)

"""Bodies: the contents of requests and responses, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

# Strict: "4" and true are no numbers.
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Values = Annotated[list[Number], Field(min_length=1, max_length=16)]
# PostgreSQL stores no NUL; a single line has no other control characters either.
_LINE, _TEXT = r"^[^\x00-\x1f\x7f]*$", r"^[^\x00]*$"
Line = Annotated[str, StringConstraints(pattern=_LINE)]
Text = Annotated[str, StringConstraints(pattern=_TEXT)]
Name = Annotated[str, StringConstraints(pattern=_LINE, min_length=1, max_length=200)]
Amount = Annotated[int, Field(ge=0, le=10**12)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class Body(BaseModel):
    """A request's body: unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")


class EnterBody(Body):
    """How a worker comes in: by a link of ours, or sent by a provider with its parameters."""

    invite: Annotated[Line, StringConstraints(max_length=200)] | None = Field(
        None, description="The token of the campaign's link."
    )
    provider: Literal["link", "prolific", "mturk"] = "link"
    params: dict[str, Annotated[Line, StringConstraints(max_length=500)]] = Field(
        default_factory=dict,
        max_length=40,
        description="The query parameters of the page, as the provider filled them in.",
        examples=[{"PROLIFIC_PID": "5f3c", "STUDY_ID": "61ab", "SESSION_ID": "77e0"}],
    )
    worker_token: Annotated[Line, StringConstraints(max_length=200)] | None = Field(
        None, description="The token of an earlier visit: the same worker comes back."
    )


class CampaignForWorkers(BaseModel):
    """What a worker may know about a campaign."""

    slug: str
    title: str
    instructions: str
    language: str = Field(examples=["en"])
    question: dict[str, Any] = Field(examples=[{"kind": "number", "text": "How old?", "min": 0}])
    practice: int
    unit: str | None
    price: int = Field(description="What an answer pays, in minor units (cents).")
    currency: str = Field(examples=["EUR"])


class EnterReply(BaseModel):
    """A worker's token, and the campaign; a preview has no token and gets no offers."""

    worker_token: str | None
    worker: str | None = Field(description="Pseudonym.", examples=["w-7f3a"])
    preview: bool
    campaign: CampaignForWorkers


class TaskForWorkers(BaseModel):
    """What a worker sees of a task: neither its id nor its name, which might reveal the truth."""

    content: dict[str, Any] = Field(examples=[{"text": "How old is the **oak** by the gate?"}])


class OfferReply(BaseModel):
    """One task, offered to one worker until it expires."""

    id: str
    task: TaskForWorkers
    practice: bool
    expires_in: float
    position: int = Field(description="The number of this worker's answer, from 1.")
    answered: int


class CompletionReply(BaseModel):
    """Where the worker goes at the end: a provider's page, or a form to send to it."""

    provider: str
    code: str | None
    url: str | None = None
    form: dict[str, Any] | None = None


class NextReply(BaseModel):
    """The next offer, or why there is none."""

    offer: OfferReply | None
    reason: str | None = Field(examples=["done"])
    retry_after: float | None = Field(None, description="Seconds to wait before asking again.")
    completion: CompletionReply | None = None


class AnswerBody(Body):
    """An answer: as many numbers as the question has values."""

    value: Values = Field(examples=[[42.0]])
    lead_ms: Annotated[int, Field(ge=0, le=10**9)] | None = Field(
        None, description="Milliseconds from seeing the task to sending the answer."
    )


class PracticeReply(BaseModel):
    """The truth of a practice task, shown after the answer."""

    truth: list[float]


class AnswerReply(BaseModel):
    """What was stored; nothing is acknowledged before it is on the disk."""

    version: int
    again: bool = Field(description="The same answer was stored before; nothing changed.")
    practice: PracticeReply | None
    editable_for: float = Field(description="Seconds in which the answer can still be changed.")
    editable_until: float = Field(description="The same as a UTC time stamp.")
    next: NextReply | None = Field(None, description="With `?next=1`: the next offer.")


class EditBody(Body):
    """Another value for an answer that was just given."""

    value: Values = Field(examples=[[43.0]])


class SkipBody(Body):
    """Why a task is skipped."""

    reason: Annotated[Text, StringConstraints(max_length=500)] = ""


class ReportBody(Body):
    """What is wrong with a task."""

    text: Annotated[Text, StringConstraints(min_length=1, max_length=2000)] = Field(
        examples=["The image does not load."]
    )


class ExtendReply(BaseModel):
    """How long an offer is held from now."""

    expires_in: float


class Done(BaseModel):
    """The request was carried out."""

    done: bool = True


class CampaignBody(Body):
    """A new campaign."""

    slug: Slug | None = Field(None, description="Its name in URLs. [default: made from the title]")
    title: Annotated[Line, StringConstraints(min_length=1, max_length=200)] = Field(
        examples=["Ages of trees"]
    )
    instructions: Annotated[Text, StringConstraints(max_length=20_000)] = ""
    question: dict[str, Any] = Field(
        examples=[{"kind": "number", "text": "How old is it?", "unit": "years", "min": 0}]
    )
    rules: dict[str, Any] = Field(default_factory=dict, examples=[{"price": 5, "half_width": 2}])
    budget: Amount | None = Field(None, description="In minor units (cents); null: no cap.")
    state: Literal["draft", "open"] = "open"


class CampaignChanges(Body):
    """What may change while a campaign runs."""

    title: Annotated[Line, StringConstraints(min_length=1, max_length=200)] | None = None
    instructions: Annotated[Text, StringConstraints(max_length=20_000)] | None = None
    rules: dict[str, Any] | None = Field(None, description="Rules to change; the rest stay.")
    budget: Amount | None = None
    state: Literal["draft", "open", "paused", "closed"] | None = None


class TaskBody(Body):
    """A task: its name is the owner's id for it, and nobody else sees it."""

    name: Name = Field(examples=["oak-17"])
    content: dict[str, Any] = Field(default_factory=dict, examples=[{"text": "The oak, 3.2 m"}])
    kind: Literal["real", "gold", "practice"] = "real"
    truth: list[Number] | None = Field(None, max_length=16, description="For gold and practice.")


class GoldBody(Body):
    """Known truths by the name of the task."""

    gold: dict[Name, list[Number]] = Field(examples=[{"oak-17": [120.0]}], max_length=5_000)


class WithdrawBody(Body):
    """Tasks to withdraw: nobody gets them any more."""

    names: list[Name] = Field(min_length=1, max_length=5_000)


class GivenAnswer(Body):
    """An answer that was given elsewhere."""

    task: Name
    worker: Name = Field(description="The worker's id there; stored as a pseudonym.")
    value: Values


class WorkerChange(Body):
    """A worker's new state."""

    state: Literal["active", "paused", "quarantined", "banned"]


class CreditsBody(Body):
    """Credits, and their new state."""

    answers: list[Name] = Field(max_length=10_000, description="Ids of answers.")
    state: Literal["due", "approved", "rejected", "paid"]
    reason: Annotated[Text, StringConstraints(max_length=500)] = Field(
        "", description="Required for a rejection; shown in the tables of credits and payments."
    )


class AddedReply(BaseModel):
    """How many tasks were added; `again` where the same request was made before."""

    n: int
    again: bool
    seq: int


class TakenReply(BaseModel):
    """How many answers were taken, and which were refused, by their place in the request."""

    taken: int
    refused: list[dict[str, Any]] = Field(examples=[[{"row": 3, "detail": "no task 'oak-9'"}]])


class ChangedReply(BaseModel):
    """How many rows changed, and the campaign's sequence number after it."""

    n: int
    seq: int


class LinkBody(Body):
    """A link to make."""

    kind: Literal["invite", "owner", "label_studio", "prolific", "mturk"] = "invite"
    days: Annotated[int, Field(ge=1, le=3650)] | None = Field(None, description="Until it expires.")
    note: Annotated[Line, StringConstraints(max_length=100)] = ""


class LinkReply(BaseModel):
    """A link, shown once: only the hash of its token is kept."""

    url: str
    token: str
    kind: str
    id: str = Field(description="The id by which the link is listed and revoked.")


class RevokedReply(BaseModel):
    """How many links were ended."""

    n: int


class Page(BaseModel):
    """One page of rows; `next` is the cursor of the following page, null at the end."""

    rows: list[dict[str, Any]]
    next: str | None = None
    total: int | None = None

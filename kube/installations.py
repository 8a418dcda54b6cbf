"""What an installed component leaves in the API, as far as it tells whose it is: Deployments and webhook configurations."""

from kube.struct import Struct
from kube.types import ObjectMeta


class ProgramContainer(Struct, frozen=True, kw_only=True):
    image: str = ""
    args: tuple[str, ...] = ()


class ProgramSpec(Struct, frozen=True, kw_only=True):
    containers: tuple[ProgramContainer, ...] = ()


class TemplateMeta(Struct, frozen=True, kw_only=True):
    labels: dict[str, str] = {}


class Template(Struct, frozen=True, kw_only=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: ProgramSpec = ProgramSpec()


class DeploymentSpec(Struct, frozen=True, kw_only=True):
    """`replicas`: how many are wanted; the server fills in 1 where nothing was said."""

    replicas: int = 1
    template: Template = Template()


class Deployment(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: DeploymentSpec = DeploymentSpec()


class WebhookService(Struct, frozen=True, kw_only=True):
    namespace: str = ""
    name: str = ""
    path: str = ""


class WebhookClient(Struct, frozen=True, kw_only=True):
    service: WebhookService | None = None


class MatchCondition(Struct, frozen=True, kw_only=True):
    """`expression`: CEL over the request."""

    name: str = ""
    expression: str = ""


class Webhook(Struct, frozen=True, kw_only=True):
    name: str = ""
    client_config: WebhookClient = WebhookClient()
    match_conditions: tuple[MatchCondition, ...] = ()


class WebhookConfiguration(Struct, frozen=True, kw_only=True):
    """A ValidatingWebhookConfiguration or a MutatingWebhookConfiguration: a list leaves the kind out, its reader knows."""

    metadata: ObjectMeta
    webhooks: tuple[Webhook, ...] | None = None

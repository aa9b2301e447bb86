"""Every configuration key, with its type, bounds, default and meaning.

An option is here only if something honours it; `agentrl config show` prints this list.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, field_validator, model_validator
from pydantic_core import PydanticCustomError


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("float_type", "Input should be a valid number")
    return value


Int = Annotated[int, Strict()]  # lax mode would take True for 1
Float = Annotated[float, BeforeValidator(_no_bool)]  # not strict: YAML reads 1e-5, without a point, as text
Bool = Annotated[bool, Strict()]
Text = Annotated[str, Strict()]
PositiveInt = Annotated[Int, Field(ge=1)]
NaturalInt = Annotated[Int, Field(ge=0)]
Share = Annotated[Float, Field(ge=0, le=1)]
PositiveFloat = Annotated[Float, Field(gt=0)]
NaturalFloat = Annotated[Float, Field(ge=0)]


class Section(BaseModel):
    """Base of all sections: frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class LoraConfig(Section):
    """Small trained matrices beside frozen weights."""

    rank: PositiveInt = Field(16, description="width of the adapters")
    alpha: PositiveInt = Field(32, description="what an adapter adds is multiplied by alpha / rank")
    targets: list[Text] | None = Field(
        None, description="names of the layers; null adapts every linear layer but the output head"
    )


class ModelConfig(Section):
    """The policy."""

    path: Text = Field("tiny", description="'tiny' (embedded), a Hugging Face folder, or a hub id")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="number format of the forward passes")
    device: Text = Field("auto", description="'auto', 'cpu', 'cuda', 'cuda:1', ...")
    lora: LoraConfig | None = Field(None, description="train adapters instead of the weights; {} takes their defaults")


class EnvConfig(Section):
    """The environment."""

    name: Text = Field("code_exec", description="name of an installed environment, 'file.py:Class' or 'module:Class'")
    options: dict[str, Any] = Field({}, description="options of the environment (`agentrl env show NAME`)")


class SuccessConfig(Section):
    """What counts as success, apart from the reward: pass@k counts this."""

    part: Text = Field(description="name of the part whose raw score decides")
    at_least: Float = Field(1.0, description="least raw score that is a success")


class PartConfig(Section):
    """One part of the reward."""

    name: Text = Field(description="name under which the part is recorded")
    kind: Literal["outcome", "process"] = Field("outcome", description="whole rollout, or step by step")
    verifier: Text | None = Field(None, description="verifier that scores it")
    source: Literal["env_reward"] | None = Field(None, description="or: the rewards that the environment's steps gave")
    weight: Float = Field(1.0, description="factor of the raw score; 0 records without rewarding")
    options: dict[str, Any] = Field({}, description="options of the verifier")
    reduce: Literal["sum", "mean", "min", "delta", "potential"] | None = Field(
        None, description="form in which the scores of steps count (docs/rewards.md)"
    )
    bound: PositiveFloat | None = Field(None, description="largest absolute running sum of scores (reduce: sum)")
    clip: Float | None = Field(None, description="scores of steps count as min(score - clip, 0)")
    temperature: PositiveFloat | None = Field(None, description="of the weights of reduce: min; null is 0.1")
    gamma: Share | None = Field(None, description="discount of reduce: potential, as algorithm.turn_gamma; null is 1")


class RewardConfig(Section):
    """How verdicts become a reward."""

    success: SuccessConfig | None = Field(None, description="success predicate (required to train or evaluate)")
    parts: list[PartConfig] = Field([], description="the parts; an entry with the environment's own name overrides it")
    combine: Literal["weighted_sum"] = Field("weighted_sum", description="how parts combine")
    on_truncated: Literal["keep", "zero", "soft_overlong"] = Field(
        "keep",
        description="rollouts that a limit cut: as they are, worth 0, or length costs before the limit",
    )
    overlong_share: Annotated[Float, Field(gt=0, le=1)] = Field(
        0.2, description="last share of rollout.max_tokens in which length costs, up to 1 (on_truncated: soft_overlong)"
    )
    on_unjudged: Literal["exclude"] = Field("exclude", description="what happens to members without a verdict")


class AlgorithmConfig(Section):
    """The learner's choices; null takes the preset's."""

    preset: Text = Field(
        "grpo",
        description="row of choices: ppo, grpo, dr_grpo, dapo, gspo, rloo, reinforce_pp, cispo, or file.py:NAME",
    )
    baseline: Literal["group", "leave_one_out", "none", "critic"] | None = Field(
        None, description="what a reward is compared with; none and critic work on rewards of tokens"
    )
    scale: Literal["std", "none", "whiten"] | None = Field(
        None, description="divide by the group's spread, by nothing, or by the spread of all tokens of the step"
    )
    loss: Literal["clip", "cispo"] | None = Field(None, description="clipped surrogate, or capped weight times logp")
    ratio: Literal["token", "sequence"] | None = Field(None, description="level of the probability ratio")
    aggregate: Literal["token_mean", "sequence_mean", "constant"] | None = Field(None, description="loss aggregation")
    clip_low: PositiveFloat | None = Field(None, description="ratio counts as 1 - this where it is below")
    clip_high: PositiveFloat | None = Field(None, description="ratio counts as 1 + this where it is above")
    dual_clip: NaturalFloat | None = Field(
        None, description="bound of the ratio at a negative advantage, above 1; 0 is none"
    )
    kl: Literal["loss", "reward"] | None = Field(None, description="k3 in the loss, or k1 in the rewards of tokens")
    kl_coefficient: NaturalFloat | None = Field(None, description="weight of the KL to the start policy; 0 is none")
    kl_target: NaturalFloat | None = Field(
        None, description="nats per rollout that the coefficient is adapted to (kl: reward); 0 leaves it as it is"
    )
    entropy_coefficient: NaturalFloat | None = Field(None, description="weight of an entropy bonus in the loss")
    gamma: Share | None = Field(None, description="discount per token (baseline none or critic)")
    turn_gamma: Share | None = Field(
        None, description="discount per turn; below 1 a turn is credited with what follows it, the outcome included"
    )
    process: Literal["turn", "pooled"] | None = Field(
        None, description="process rewards by turn, leave-one-out, or all steps of a group standardised together"
    )
    lam: Share | None = Field(None, description="lambda of GAE (critic)")
    critic_learning_rate: PositiveFloat | None = Field(
        None, description="peak, with the policy's schedule; null is 5 times train.learning_rate"
    )
    critic_warmup: NaturalInt | None = Field(None, description="first steps in which only the critic learns")
    value_clip: NaturalFloat | None = Field(
        None, description="clip of the value's move, in units of the reward; 0 is none"
    )
    dynamic_sampling: PositiveInt | None = Field(
        None, description="most batches drawn to fill a step with groups whose rewards differ; 1 keeps them all"
    )
    max_staleness: NaturalInt | None = Field(
        None, description="rollouts with a token of a policy more updates old than this are left out; null keeps them"
    )
    importance_cap: PositiveFloat = Field(2.0, description="cap of the importance weight of trainer over sampler")
    importance_level: Literal["token", "sequence"] = Field("token", description="one weight per token, or per rollout")
    importance_above: Literal["truncate", "zero"] = Field(
        "truncate", description="a weight above the cap becomes the cap, or its tokens are left out"
    )


class EngineConfig(Section):
    """Sampling."""

    kind: Literal["auto", "hf"] = Field("auto", description="which engine samples; auto takes what is there")
    max_new_tokens: PositiveInt = Field(512, description="tokens per turn")
    temperature: PositiveFloat = Field(1.0, description="temperature of training rollouts and of the trainer's ratios")
    batch_rows: PositiveInt = Field(256, description="rollouts sampled in one batch")


class ChatConfig(Section):
    """How messages become the model's text."""

    template: Text | None = Field(None, description="chat template (Jinja); null takes the tokenizer's, or a plain one")
    options: dict[str, Any] = Field({}, description="variables of the template, such as {enable_thinking: false}")
    system: Text | None = Field(None, description="system message for tasks that bring none")
    tool_format: Text = Field("auto", description="how calls are written; auto finds out by trying the template")
    show_tools: Bool = Field(True, description="false: the policy knows its tools from training and is not shown them")
    stop_strings: list[Annotated[Text, Field(min_length=1)]] = Field([], description="texts that end a turn")
    keep_stop_string: Bool = Field(False, description="whether the message holds the stop string that ended it")


class HistoryConfig(Section):
    """What of a long conversation the policy is shown."""

    name: Text = Field("full", description="full, window (the last turns and a note), or your own file.py:Class")
    options: dict[str, Any] = Field({}, description="options of the history")


class RolloutConfig(Section):
    """Limits of one rollout, and how rollouts share the engine."""

    max_tokens: PositiveInt = Field(4096, description="sampled tokens per rollout")
    max_turns: PositiveInt = Field(8, description="turns per rollout")
    timeout_seconds: PositiveFloat = Field(600.0, description="wall-clock limit per rollout, waiting included")
    step_timeout_seconds: PositiveFloat = Field(60.0, description="limit of one call into the environment")
    tools: list[Text] | None = Field(None, description="names of the tools that the policy may call; null allows all")
    on_parse_error: Literal["tell", "stop"] = Field(
        "tell", description="a call that cannot be carried out is told to the policy, or ends the rollout"
    )
    max_parse_errors: NaturalInt = Field(3, description="such calls that are told before the rollout ends")
    history: HistoryConfig = HistoryConfig()
    schedule: Literal["deterministic", "throughput"] = Field(
        "deterministic", description="turn barrier with fixed order and exact resume, or whatever is ready"
    )
    concurrency: PositiveInt = Field(1024, description="rollouts in flight at once")
    max_failed_share: Annotated[Float, Field(ge=0, le=1)] = Field(
        0.1, description="share of failed or unjudged rollouts in a step above which the run stops"
    )


class CurriculumConfig(Section):
    """Which tasks are trained on how often."""

    kind: Literal["none", "pass_rate"] = Field("none", description="all alike, or by their measured pass rates")
    always: Annotated[Float, Field(gt=0, le=1)] = Field(1.0, description="pass rate from which a task is solved always")
    never: Annotated[Float, Field(ge=0, lt=1)] = Field(0.0, description="pass rate up to which a task is never solved")
    weight: Annotated[Float, Field(ge=0, lt=1)] = Field(
        0.1, description="chance, per pass over the tasks, of one that is solved always or never; 0 drops it"
    )
    min_rollouts: PositiveInt = Field(8, description="rollouts of a task before its pass rate counts")
    memory: Annotated[Float, Field(ge=0, le=1)] = Field(
        0.5, description="what earlier rollouts of a task count when there are new ones"
    )

    @model_validator(mode="after")
    def _agree(self) -> CurriculumConfig:
        changed = [name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default]
        if self.kind == "none" and changed:
            raise ValueError(f"{changed[0]} does nothing with kind = 'none'; say kind = 'pass_rate'")
        if self.never >= self.always:
            raise ValueError("never must be below always")
        return self


class TrainConfig(Section):
    """The training loop."""

    steps: PositiveInt = Field(100, description="optimisation steps, each on fresh rollouts")
    tasks_per_step: PositiveInt = Field(8, description="groups per step")
    group_size: PositiveInt = Field(8, description="rollouts per group")
    epochs: PositiveInt = Field(1, description="passes over the rollouts of a step")
    minibatches: PositiveInt = Field(1, description="updates per pass")
    tokens_per_microbatch: PositiveInt = Field(8192, description="padded tokens in one forward and backward pass")
    gradient_checkpointing: Bool = Field(
        False, description="layers are computed again in the backward pass: less memory, about a third more time"
    )
    learning_rate: PositiveFloat = Field(1e-6, description="peak learning rate of AdamW")
    schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="learning rate after warm-up")
    warmup_steps: NaturalInt = Field(0, description="steps of linear warm-up")
    weight_decay: NaturalFloat = Field(0.0, description="decoupled weight decay of matrices")
    max_grad_norm: PositiveFloat = Field(1.0, description="gradients are clipped to this norm")
    save_every: PositiveInt = Field(50, description="steps between checkpoints")
    keep_checkpoints: PositiveInt = Field(2, description="newest checkpoints kept, the best one apart")
    validate_every: NaturalInt = Field(0, description="steps between validations; 0 never validates")
    patience: NaturalInt = Field(0, description="validations without improvement before an early stop; 0 never stops")
    max_seconds: PositiveFloat | None = Field(None, description="training ends at the first step past this time")
    curriculum: CurriculumConfig = CurriculumConfig()


class EvalConfig(Section):
    """Evaluation: before and after training, and `agentrl eval`."""

    samples: PositiveInt = Field(8, description="rollouts per task")
    k: list[PositiveInt] = Field([1, 4, 8], description="k of pass@k; none above samples")
    temperature: NaturalFloat = Field(1.0, description="sampling temperature; 0 is greedy")
    limit: PositiveInt | None = Field(None, description="first tasks of the split only")
    validation_samples: PositiveInt = Field(4, description="rollouts per task of a validation")
    validation_limit: PositiveInt | None = Field(None, description="first tasks of the validation split only")


class DockerConfig(Section):
    """The engine that the docker backend talks to."""

    image: Text | None = Field(None, description="image with Python; null makes one of this interpreter on the engine")
    runtime: Text | None = Field(None, description="OCI runtime, such as runsc; null takes the engine's default")
    host: Text | None = Field(None, description="address of the engine; null takes DOCKER_HOST or the local socket")


class SandboxConfig(Section):
    """Where untrusted programs run, and how many processes judge."""

    backend: Literal["auto", "bwrap", "docker"] = Field("auto", description="isolation backend")
    workers: PositiveInt | None = Field(
        None, description="warm workers of the sandbox and of judging; null takes one per CPU"
    )
    packages: list[Text] = Field([], description="installed packages that programs may import beside the stdlib")
    docker: DockerConfig = DockerConfig()


class JudgeConfig(Section):
    """The model that judges, for plugins that need the service `judge`."""

    endpoint: Text | None = Field(
        None, description="OpenAI-compatible address before /chat/completions, such as http://localhost:8000/v1"
    )
    model: Text | None = Field(None, description="name of the model at the endpoint")
    api_key_env: Text | None = Field(None, description="environment variable that holds the key; null sends none")
    timeout_seconds: PositiveFloat = Field(60.0, description="limit of one request")
    retries: NaturalInt = Field(3, description="further tries after no reply, an overloaded endpoint, or a bad reply")
    backoff_seconds: NaturalFloat = Field(1.0, description="pause before the second try, doubled each time")
    concurrency: PositiveInt = Field(16, description="requests at once")
    max_tokens: PositiveInt = Field(1024, description="tokens of one reply")
    temperature: NaturalFloat = Field(0.0, description="sampling temperature of the replies")
    seed: NaturalInt = Field(0, description="fixes the seeds of the requests")
    body: dict[str, Any] = Field({}, description="further fields of a request; null leaves out one of ours")

    @field_validator("endpoint")
    @classmethod
    def _address(cls, endpoint: str | None) -> str | None:
        if endpoint is None:
            return None
        try:
            found = urlsplit(endpoint)
            usable = found.scheme in ("http", "https") and found.hostname and found.port != 0
        except ValueError:  # brackets, or a port that is no number
            usable = False
        if not usable or found.query or found.fragment or not endpoint.isprintable() or " " in endpoint:
            raise PydanticCustomError("address", "Input should be an address such as http://localhost:8000/v1")
        if found.username is not None or found.password is not None:
            raise PydanticCustomError("address", "Input should hold no password: name a variable in judge.api_key_env")
        if found.path.rstrip("/").endswith("/chat/completions"):
            raise PydanticCustomError("address", "Input should end before /chat/completions")
        return endpoint

    @field_validator("body")
    @classmethod
    def _further(cls, body: dict[str, Any]) -> dict[str, Any]:
        for name in ("model", "messages", "stream", "n"):
            if name in body:
                raise PydanticCustomError("body", f"Input should not hold {name}, which is set for each question")
        for name in ("temperature", "seed", "max_tokens"):
            if body.get(name) is not None:
                raise PydanticCustomError("body", f"Input should not hold {name}: set judge.{name}")
        return body


class ScratchConfig(Section):
    """A policy made from nothing: a Llama with a tokenizer trained on the demonstrations."""

    vocabulary: PositiveInt = Field(512, description="entries of the tokenizer")
    hidden_size: PositiveInt = Field(160, description="width")
    layers: PositiveInt = Field(4, description="depth")
    heads: PositiveInt = Field(5, description="attention heads")
    intermediate_size: PositiveInt = Field(448, description="width of the feed-forward layers")
    context: PositiveInt = Field(512, description="longest sequence")


class SftConfig(Section):
    """Supervised fine-tuning on an environment's demonstrations."""

    steps: PositiveInt = Field(700, description="updates")
    tokens_per_batch: PositiveInt = Field(8192, description="padded tokens of one update")
    learning_rate: PositiveFloat = Field(3e-3, description="peak learning rate of AdamW")
    schedule: Literal["constant", "linear", "cosine"] = Field("cosine", description="learning rate after warm-up")
    warmup_steps: NaturalInt = Field(50, description="steps of linear warm-up")
    weight_decay: NaturalFloat = Field(0.1, description="decoupled weight decay of matrices")
    max_grad_norm: PositiveFloat = Field(1.0, description="gradients are clipped to this norm")
    validation_share: Annotated[Float, Field(ge=0, lt=1)] = Field(0.02, description="demonstrations held out")
    scratch: ScratchConfig | None = Field(None, description="make a new policy instead of loading model.path")
    save_dtype: Literal["float32", "float16", "bfloat16"] = Field("float32", description="number format of the result")


class Config(Section):
    """Everything that decides a run."""

    seed: NaturalInt = Field(0, description="fixes everything random")
    threads: PositiveInt | None = Field(None, description="threads of torch on the CPU; null leaves torch's choice")
    model: ModelConfig = ModelConfig()
    env: EnvConfig = EnvConfig()
    reward: RewardConfig = RewardConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    engine: EngineConfig = EngineConfig()
    chat: ChatConfig = ChatConfig()
    rollout: RolloutConfig = RolloutConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    sandbox: SandboxConfig = SandboxConfig()
    judge: JudgeConfig = JudgeConfig()

    sft: SftConfig = SftConfig()

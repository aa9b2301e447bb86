"""The application: which commands there are, and what an error looks like."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentrl.api import AgentRLError
from agentrl.cli import env, inspect, judge, run

app = typer.Typer(
    help="Agentic, verifiable-reward reinforcement learning of language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
env_app = typer.Typer(help="Environments.", no_args_is_help=True)
verifier_app = typer.Typer(help="Verifiers.", no_args_is_help=True)
config_app = typer.Typer(help="Configuration.", no_args_is_help=True)
app.add_typer(env_app, name="env")
app.add_typer(verifier_app, name="verifier")
app.add_typer(config_app, name="config")

app.command("train")(run.train)
app.command("eval")(run.evaluate)
app.command("sft")(run.sft)
app.command("verify")(judge.verify)
app.command("audit")(env.audit)
app.command("doctor")(inspect.doctor)
env_app.command("list")(inspect.env_list)
env_app.command("show")(inspect.env_show)
env_app.command("check")(env.check)
env_app.command("play")(env.play)
env_app.command("new")(env.new)
verifier_app.command("list")(inspect.verifier_list)
verifier_app.command("show")(inspect.verifier_show)
verifier_app.command("check")(judge.check)
config_app.command("show")(inspect.config_show)

_debug = False


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")] = False) -> None:
    """Options of every command."""
    global _debug
    _debug = debug


def main() -> None:
    """Run the command line; an error that the user can mend is one sentence and exit code 2."""
    try:
        app()
    except AgentRLError as error:
        if _debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)

"""What `--help` shows of each command in use; a test runs every line, so that none of them is out of date."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "init": ("loadtest init", "loadtest init mine"),
    "run": (
        "loadtest run scenarios/chat.py",
        "loadtest run scenarios/chat.py --baseline http://a:8000 --speculative http://b:8000 --smoke",
        "loadtest run scenarios/chat.py --baseline http://a:1 --speculative k3=http://b:1 --speculative k5=http://c:1",
        "loadtest run scenarios/chat.py --servers servers/vllm-ngram.toml --budget 2h",
        "loadtest run scenarios/code.py --server http://a:8000 --levels 1,8,32",
        "loadtest run scenarios/chat.py --simulated --rates 5,10,20 --arrivals gamma",
        "loadtest run scenarios/rag.py --simulated --set generation.temperature=0.7",
    ),
    "plan": (
        "loadtest plan scenarios/chat.py --simulated",
        "loadtest plan scenarios/chat.py --baseline http://a:8000 --speculative http://b:8000 --budget 1h",
    ),
    "check": (
        "loadtest check --baseline http://a:8000 --speculative http://b:8000",
        "loadtest check --simulated --all",
    ),
    "report": ("loadtest report reports/RUN", "loadtest report reports/RUN reports/OTHER --out both.html"),
    "gate": (
        "loadtest gate reports/RUN --slo slo.toml",
        "loadtest gate reports/RUN --against reports/OTHER --changed model",
    ),
    "compare-outputs": ("loadtest compare-outputs --baseline http://a:8000 --speculative http://b:8000",),
    "import": (
        "loadtest import scenarios/trace.csv --out mine",
        "loadtest import scenarios/trace.csv --out short --length 60s --speed 2",
    ),
    "worker": (
        "loadtest worker --master 10.0.0.7:5557",
        "loadtest worker --master localhost:5557 --name left --spool /tmp/left --wait 1m",
    ),
    "simulate": ("loadtest simulate --list", "loadtest simulate --world default --port 8000"),
}


def epilog(command: str) -> str | None:
    """Return the end of a command's help; click leaves a paragraph that begins with \\b as it is."""
    lines = EXAMPLES.get(command)
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines))) if lines else None

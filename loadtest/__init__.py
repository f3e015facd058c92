"""Load testing and SLO evaluation of live LLM endpoints."""

__version__ = "0.1.0"

"""Pure: records in, judgement out."""

"""What is asked: sessions, prompts and their text; pure and seeded."""

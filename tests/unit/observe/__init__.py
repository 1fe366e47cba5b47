"""Tests of ``thence.observe``."""

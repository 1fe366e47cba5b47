"""Running programs against NATS, JetStream and Redis, side by side: see ``benchmarks.peers.workloads``."""

"""The peers of a node: connections to them, the epoch with each, who is suspected, and who is stalled.

May import ``node.directory``, ``node.driver`` and what is below them. Exports ``connections``, ``epochs``, ``failure_detector``,
``peer`` and ``stalls``.
"""

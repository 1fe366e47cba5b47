"""Parts of a simulated process: each has its own state and is explained without the process.

``sync_queue`` stores records, does what has to wait for the disk and wakes a process, ``connections`` agrees with peers on
epochs, ``participant`` takes part in changes of the topology.

It imports the core, the trace and ``sim.kernel``, ``sim.network`` and ``sim.disk``; no process and no simulation. Exports
``connections``, ``participant`` and ``sync_queue``.
"""

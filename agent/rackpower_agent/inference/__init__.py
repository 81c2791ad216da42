"""Token sources: what inference servers say about tokens and queues, one small file per kind of server.

Never here: anything that changes a server or a cap.
"""

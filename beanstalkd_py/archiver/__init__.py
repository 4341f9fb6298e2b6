"""Archive finished jobs: each job that ends becomes one message in the history store, exactly once.

`archive` reads the binlogs, `store_settings` opens the store. `folder_identity` and
`archived_position` hold the state that must survive a crash. No module here imports the server.
"""

-- Reads claimed jobs once more, by their ids.
-- @keys
-- @args base ids...
-- @returns msgpack: the columns of outcomes.CLAIMED_COLUMNS; a job that is gone has no timestamp
-- @include bull/lib/claim_rows
-- @include lib/collapsed

return cmsgpack.pack(collapsed(claim_rows(arg.base, arg.ids)))

-- Reads claimed jobs again, by their packed ids.
-- @args fields...
-- @returns msgpack: a column of values for each field, by name; see lib/claim_jobs.lua. A removed job has no timestamp
-- @include lib: claim_jobs(claim_rows collapsed)

return cmsgpack.pack(collapsed(claim_rows(arg.base, cmsgpack.unpack(arg.ids), arg.fields), arg.fields))

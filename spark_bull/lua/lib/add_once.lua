-- @include lib/once
-- @include lib/time_ms

-- Adds jobs of a chunk, unless this call was answered before.
-- `add_jobs(key, arg, chunk, from, now)` returns {next, added, duplicates, deduplicated (nil: 0), ids, rejected (nil:
-- none)}.
local function add_once(key, arg, add_jobs)
  return once(key.receipt, arg.number .. ':' .. arg.from, arg.ttl_ms, function()
    local chunk = cmsgpack.unpack(arg.chunk)
    local result = add_jobs(key, arg, chunk, tonumber(arg.from), time_ms())
    local ids = arg.want_ids == '1' and result.ids or {}
    return {result.next, result.added, result.duplicates, result.deduplicated or 0, ids, result.rejected or {}}
  end)
end

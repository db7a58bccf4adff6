-- @include lib/once
-- @include lib/time_ms

-- Adds rows of a chunk unless this very call was answered before.
-- `add(chunk, from, now)` adds rows and returns {next, added, duplicates, ids}.
local function add_once(receipt, arg, add)
  return once(receipt, arg.number .. ':' .. arg.from, arg.ttl_ms, function()
    local chunk = cmsgpack.unpack(arg.chunk)
    local result = add(chunk, tonumber(arg.from), time_ms())
    local ids = arg.want_ids == '1' and result.ids or {}
    return {result.next, result.added, result.duplicates, ids}
  end)
end

-- @include lib: stream_info

-- The id of the last event added to a stream, even if it was trimmed since; '0-0' for none.
local function last_event(stream)
  local info = stream_info(stream)
  return info and info['last-generated-id'] or '0-0'
end

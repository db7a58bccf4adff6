-- The characters of UTF-8 of several bytes.
local WIDE = {
  '[\194-\223][\128-\191]',
  '\224[\160-\191][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]',
  '\237[\128-\159][\128-\191]',
  '\240[\144-\191][\128-\191][\128-\191]',
  '[\241-\243][\128-\191][\128-\191][\128-\191]',
  '\244[\128-\143][\128-\191][\128-\191]',
}

-- Whether a text is UTF-8.
local function is_utf8(text)
  local left = text
  for i = 1, string.find(text, '[\128-\255]') and #WIDE or 0 do
    left = string.gsub(left, WIDE[i], ' ')
  end
  return not string.find(left, '[\128-\255]')
end

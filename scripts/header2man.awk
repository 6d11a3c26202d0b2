# SPDX-License-Identifier: Apache-2.0
# The work of header2man. One pass collects the header's doc comments,
# prototypes, types and constants; END writes the pages.
#
# Understood: kernel-doc comments ("/**", "NAME - summary", "@param: text",
# paragraphs, "Return: text"), "DOC:" comments, and "/* ---- title */" lines,
# which start a group of calls. What only C++ sees is skipped.
#
# Prototypes that follow a documented one without an empty line share its
# comment ("NAME, NAME - summary"). A parameter that a comment leaves out is as
# at the nearest earlier call that describes it; a "Return:" that it leaves out
# is that of the first call that it names.

function fail(line, text)
{
	printf "%s:%d: %s\n", FILENAME, line, text > "/dev/stderr"
	failed = 1
}

function trim(s)
{
	sub(/^[ \t]+/, "", s)
	sub(/[ \t]+$/, "", s)
	return s
}

# ------------------------------------------------------------------ reading

BEGIN { group = "" }

/^#[ \t]*if/ {
	cxx[++nest] = ($0 !~ /__cplusplus/) ? "" : ($0 ~ /ifndef|!/) ? "else" : "then"
	if (!skip && cxx[nest] == "then")
		skip = nest
	next
}
/^#[ \t]*else/ {
	if (skip == nest)
		skip = 0
	else if (!skip && cxx[nest] == "else")
		skip = nest
	next
}
/^#[ \t]*endif/ {
	if (skip == nest)
		skip = 0
	nest--
	next
}
skip || /^#[ \t]*el/ { next }
/^[ \t]*$/ && decl == "" && !in_doc { shared = 0 }

in_doc {
	if ($0 ~ /\*\//) {
		in_doc = 0
		end_doc()
	} else {
		sub(/^[ \t]*\* ?/, "")
		doc_line[++doc_n] = $0
	}
	next
}

/^\/\*\*[ \t]*$/ {
	in_doc = 1
	doc_n = 0
	doc_at = FNR
	next
}

in_comment { if ($0 ~ /\*\//) in_comment = 0; next }

/^\/\* -+ .* \*\/$/ {
	group = $0
	gsub(/^\/\* -+ | \*\/$/, "", group)
	next
}

decl == "" && /^[ \t]*\/\*/ { if ($0 !~ /\*\//) in_comment = 1; next }

/^#[ \t]*define/ {
	name = $2
	sub(/^#[ \t]*define[ \t]+/, "")
	value = substr($0, length(name) + 1)
	if (name !~ /\(/ && trim(value) != "" && value !~ /__attribute__/)
		add_type(name, "#define " name " " trim(value))
	next
}
/^#/ { next }

# A declaration runs to the ';' (or an inline body's '{') outside braces.
decl != "" || /[^ \t]/ {
	if (decl == "")
		decl_at = FNR
	decl = decl (decl == "" ? "" : "\n") $0
	code = $0
	gsub(/\/\*[^*]*\*\//, "", code)
	inline_body = decl ~ /\)[ \t\n]*\{/
	depth += gsub(/\{/, "{", code) - gsub(/\}/, "}", code)
	if (depth == 0 && (code ~ /;[ \t]*$/ || (inline_body && code ~ /\}/)))
		end_decl()
}

# Splits a finished comment into summary, parameters, paragraphs and Return.
function end_doc(  i, s, where, key, line)
{
	close_group()
	line = doc_line[1]
	if (line ~ /^DOC:/) {
		for (i = 2; i <= doc_n; i++)
			overview[++overview_n] = doc_line[i]
		return
	}
	if (line ~ /^(struct|enum|union|typedef) /)
		return
	i = index(line, " - ")
	if (!i) {
		fail(doc_at, "doc comment does not start with \"NAME - summary\"")
		return
	}
	have_doc = 1
	doc_name = substr(line, 1, i - 1)
	sub(/\(\)$/, "", doc_name)
	several = doc_name ~ /[,*]/
	sub(/,.*/, "", doc_name)
	doc_sum = substr(line, i + 3)
	doc_body_n = 0
	doc_ret = ""
	doc_params = ""
	where = "summary"
	for (i = 2; i <= doc_n; i++) {
		s = doc_line[i]
		# a "Return:" behind a sentence of the last line
		if (s ~ /\. Return: /) {
			doc_body[++doc_body_n] = substr(s, 1, index(s, ". Return: "))
			s = substr(s, index(s, ". Return: ") + 2)
		}
		if (s ~ /^@[A-Za-z_.]+:/) {
			key = s
			sub(/^@/, "", key)
			sub(/:.*/, "", key)
			sub(/^@[A-Za-z_.]+:[ \t]*/, "", s)
			doc_params = doc_params " " key " "
			doc_param[key] = s
			where = "param"
		} else if (s ~ /^Return:/) {
			sub(/^Return:[ \t]*/, "", s)
			doc_ret = s
			where = "return"
		} else if (s == "" && where != "return") {
			where = "body"
			doc_body[++doc_body_n] = ""
		} else if (where == "param")
			doc_param[key] = doc_param[key] " " trim(s)
		else if (where == "return")
			doc_ret = doc_ret (s == "" ? "\n" : " " trim(s))
		else if (where == "summary")
			doc_sum = doc_sum " " trim(s)
		else
			doc_body[++doc_body_n] = s
	}
}

# Files a declaration as a call, a type, or nothing.
function end_decl(  d, flat, name)
{
	d = decl
	decl = ""
	depth = 0
	flat = d
	gsub(/\/\*[^*]*\*\//, "", flat)
	gsub(/[ \t\n]+/, " ", flat)
	if (flat ~ /^(typedef )?(struct|enum|union) ?[A-Za-z0-9_]* ?\{/) {
		file_aggregate(d, flat)
	} else if (flat ~ /^typedef /) {
		name = flat
		if (name ~ /\( ?\*/) {
			sub(/^[^(]*\( ?\* ?/, "", name)
			sub(/[^A-Za-z0-9_].*/, "", name)
		} else {
			sub(/;.*/, "", name)
			sub(/.*[ *]/, "", name)
		}
		add_type(name, d)
	} else if (flat ~ /\(/ && flat !~ /^(_Static_assert|static_assert) ?\(/) {
		if (have_doc || shared || flat !~ /^static /)
			file_call(flat)
	}
	have_doc = 0
}

# A comment's parameters must occur in one of the calls that share it.
function close_group(  keys, n, i)
{
	n = split(trim(doc_params), keys, /  */)
	for (i = 1; i <= n && want != ""; i++)
		if (!index(want, " " keys[i] " "))
			fail(doc_at, group_name "(): @" keys[i] " is no parameter")
	want = ""
	shared = 0
}

function file_aggregate(d, flat,  tag, alias)
{
	tag = flat
	sub(/^typedef /, "", tag)
	sub(/ ?\{.*/, "", tag)
	alias = ""
	if (flat ~ /^typedef /) {
		alias = flat
		sub(/.*\} ?/, "", alias)
		sub(/ ?;.*/, "", alias)
	}
	if (tag ~ / /) {
		add_type(tag, d)
		if (alias != "")
			same_type[alias] = tag
	} else if (alias != "")
		add_type(alias, d)
}

function add_type(name, text)
{
	type_name[++type_n] = name
	type_text[name] = text
}

function file_call(flat,  name, args, n, i)
{
	sub(/ ?\{.*/, ";", flat)
	gsub(/ ?__attribute__ ?\(\(([^()]|\([^()]*\))*\)\)/, "", flat)
	gsub(/ [A-Z][A-Z0-9_]*_DEFAULT\([^()]*\)/, "", flat)
	sub(/^(static )?(inline )?/, "", flat)
	while (flat ~ /^[A-Z][A-Z0-9_]+ +[A-Za-z_]+[ *]/)
		sub(/^[A-Z][A-Z0-9_]+ +/, "", flat)
	name = flat
	sub(/ ?\(.*/, "", name)
	sub(/.*[ *]/, "", name)
	if (!have_doc && !shared) {
		fail(decl_at, name "() has no doc comment")
		return
	}
	if (have_doc && !several && name != doc_name) {
		fail(doc_at, "comment of " doc_name "() stands before " name "()")
		return
	}
	if (have_doc)
		group_name = name
	shared = 1
	call[++call_n] = name
	is_call[name] = 1
	call_at[name] = decl_at
	proto[name] = flat
	call_group[name] = group
	summary[name] = doc_sum
	ret[name] = doc_ret
	body_n[name] = doc_body_n
	for (i = 1; i <= doc_body_n; i++)
		body[name, i] = doc_body[i]

	n = split_args(flat, args)
	want = want " "
	for (i = 1; i <= n; i++) {
		param[name, i] = args[i]
		want = want " " args[i] " "
		if (index(doc_params, " " args[i] " "))
			described[args[i]] = doc_param[args[i]]
		if (args[i] in described)
			param_text[name, i] = described[args[i]]
		else
			fail(decl_at, name "(): @" args[i] " is not described")
	}
	param_n[name] = n
}

# The result of a call whose comment has no "Return:".
function inherit_return(name,  text, i, m)
{
	text = summary[name]
	for (i = 1; i <= body_n[name]; i++)
		text = text " " body[name, i]
	while (match(text, /[A-Za-z_][A-Za-z0-9_]*\(\)/)) {
		m = substr(text, RSTART, RLENGTH - 2)
		text = substr(text, RSTART + RLENGTH)
		if (m != name && (m in is_call) && ret[m] != "") {
			ret[name] = "as " m "()."
			return
		}
	}
	fail(call_at[name], name "(): no \"Return:\"")
}

# The text between the parameter list's parentheses.
function arg_text(flat)
{
	flat = substr(flat, index(flat, "(") + 1)
	sub(/\) ?;[^;]*$/, "", flat)
	return flat
}

# Cuts the parameter list at its top-level commas into piece[].
function cut_args(flat, piece,  s, i, c, d, n)
{
	s = arg_text(flat)
	if (trim(s) == "void" || trim(s) == "")
		return 0
	n = 1
	piece[1] = ""
	for (i = 1; i <= length(s); i++) {
		c = substr(s, i, 1)
		d += (c == "(") - (c == ")")
		if (c == "," && d == 0)
			piece[++n] = ""
		else
			piece[n] = piece[n] c
	}
	for (i = 1; i <= n; i++)
		piece[i] = trim(piece[i])
	return n
}

function split_args(flat, args,  n, i, s)
{
	n = cut_args(flat, args)
	for (i = 1; i <= n; i++) {
		s = args[i]
		if (s ~ /\( ?\*/) {
			sub(/^[^(]*\( ?\* ?/, "", s)
			sub(/[^A-Za-z0-9_].*/, "", s)
		} else {
			sub(/ ?\[.*/, "", s)
			sub(/.*[ *]/, "", s)
		}
		args[i] = s
	}
	return n
}

# ------------------------------------------------------------------ writing

# Plain text to roff: escapes only.
function esc(s)
{
	gsub(/\\/, "\\e", s)
	gsub(/-/, "\\-", s)
	return s
}

# Running text to roff: @param, `code`, name(), page(2), NAMES_LIKE_THIS, -ERRNO.
function mark(s,  o, m, rest)
{
	o = ""
	while (match(s, /@[A-Za-z_][A-Za-z0-9_]*|`[^`]*`|[A-Za-z_][A-Za-z0-9_]*\([0-9]?\)|%?[A-Z][A-Z0-9]*_[A-Z0-9_]+|-E[A-Z0-9]+/)) {
		o = o minus(substr(s, 1, RSTART - 1))
		m = substr(s, RSTART, RLENGTH)
		s = substr(s, RSTART + RLENGTH)
		if (m ~ /^@/)
			m = "\\fI" substr(m, 2) "\\fR"
		else if (m ~ /^`/)
			m = "\\fB" esc(substr(m, 2, length(m) - 2)) "\\fR"
		else if (m ~ /\)$/) {
			rest = m
			sub(/.*\(/, "(", rest)
			sub(/\(.*/, "", m)
			seen[m] = 1
			if (rest == "()" && (m in is_call))
				rest = "(3)"
			m = "\\fB" m "\\fR" rest
		} else {
			sub(/^%/, "", m)
			m = "\\fB" esc(m) "\\fR"
		}
		o = o m
	}
	return o minus(s)
}

# A minus sign, as opposed to a hyphen within a word, must stay one.
function minus(s)
{
	gsub(/\\/, "\\e", s)
	gsub(/ -/, " \\-", s)
	sub(/^-/, "\\-", s)
	return s
}

function put(line)
{
	if (line ~ /^[.']/)
		line = "\\&" line
	print line > file
}

# One sentence a line, and no line beyond 78 columns.
function fill(s,  w, n, i, line)
{
	n = split(mark(s), w, /[ \t\n]+/)
	line = ""
	for (i = 1; i <= n; i++) {
		if (w[i] == "")
			continue
		if (line != "" && length(line) + 1 + length(w[i]) > 76) {
			put(line)
			line = ""
		}
		line = line (line == "" ? "" : " ") w[i]
		if (w[i] ~ /[.!?]$/ && i < n && length(w[i]) > 2) {
			put(line)
			line = ""
		}
	}
	if (line != "")
		put(line)
}

function literal(text,  l, n, i)
{
	print ".EX" > file
	n = split(text, l, "\n")
	for (i = 1; i <= n; i++)
		put(literal_line(l[i]))
	print ".EE" > file
}

# Tabs to blanks, since a formatter's tab stops are its own.
function literal_line(s,  o, i, c)
{
	o = ""
	for (i = 1; i <= length(s); i++) {
		c = substr(s, i, 1)
		if (c == "\t") {
			do
				o = o " "
			while (length(o) % 8)
		} else
			o = o c
	}
	return esc(o)
}

# Paragraphs; a line indented by two or more blanks is shown as it is.
function paragraphs(lines, n, headings,  i, s, text, block, head)
{
	text = ""
	block = ""
	lines[n + 1] = ""
	for (i = 1; i <= n + 1; i++) {
		s = lines[i]
		if (s ~ /^(  |\t)/ && text == "") {
			block = block (block == "" ? "" : "\n") s
			continue
		}
		if (block != "" && (s != "" || i == n + 1)) {
			literal(block)
			block = ""
		}
		if (s != "") {
			text = text (text == "" ? "" : " ") trim(s)
			if (s !~ /:$/ || lines[i + 1] !~ /^(  |\t)/)
				continue
		}
		if (text == "")
			continue
		head = text
		sub(/\. .*/, "", head)
		if (headings && head ~ /^[A-Za-z]+$/ && head != text) {
			print ".SS " toupper(substr(head, 1, 1)) substr(head, 2) > file
			text = substr(text, length(head) + 3)
		} else if (headings && text ~ /^[A-Z][a-z]+ \([^()]*(\(\)[^()]*)*\):$/) {
			print ".SS " substr(text, 1, index(text, " ") - 1) > file
			text = substr(text, index(text, "(") + 1)
			sub(/\):$/, ":", text)
			text = toupper(substr(text, 1, 1)) substr(text, 2)
		} else if (started)
			print ".PP" > file
		started = 1
		fill(text)
		text = ""
	}
}

function title(page, section)
{
	file = out "/" page "." section
	print ".\\\" SPDX-License-Identifier: Apache-2.0" > file
	print ".\\\" Made by header2man from " base ": change that, not this." > file
	print ".TH " toupper(page) " " section " " date " \"phoenix " version "\"" \
		" \"Phoenix manual\"" > file
	print ".SH NAME" > file
}

function synopsis_head()
{
	print ".SH SYNOPSIS" > file
	print ".nf" > file
	print ".B #include <" base ">" > file
}

# The prototype, parameters in italics, cut between parameters.
function synopsis(name,  n, piece, args, i, line, plain, piece_i)
{
	synopsis_head()
	print ".PP" > file
	n = cut_args(proto[name], piece)
	split_args(proto[name], args)
	plain = substr(proto[name], 1, index(proto[name], "("))
	line = "\\fB" plain
	if (!n)
		line = line "void"
	for (i = 1; i <= n; i++) {
		piece_i = piece[i] (i < n ? "," : ");")
		if (i > 1 && length(plain) + 1 + length(piece_i) > 76) {
			put(line "\\fR")
			plain = "        "
			line = "\\fB" plain
		} else if (i > 1) {
			plain = plain " "
			line = line " "
		}
		plain = plain piece_i
		line = line italic_last(piece_i, args[i])
	}
	put(line (n ? "" : ");") "\\fR")
	print ".fi" > file
}

function italic_last(s, name,  i, at)
{
	at = 0
	for (i = 1; i <= length(s) - length(name) + 1; i++)
		if (substr(s, i, length(name)) == name && !at &&
		    (i == 1 || substr(s, i - 1, 1) !~ /[A-Za-z0-9_]/) &&
		    substr(s, i + length(name), 1) !~ /[A-Za-z0-9_ ]/)
			at = i
	if (!at)
		return s
	return substr(s, 1, at - 1) "\\fI" name "\\fB" substr(s, at + length(name))
}

function mentions(text, name,  at, before, after)
{
	while ((at = index(text, name)) > 0) {
		before = at == 1 ? " " : substr(text, at - 1, 1)
		after = substr(text, at + length(name), 1)
		if (before !~ /[A-Za-z0-9_]/ && after !~ /[A-Za-z0-9_]/)
			return 1
		text = substr(text, at + length(name))
	}
	return 0
}

# The types and constants that a page's text names, and those that they name.
function types(text,  i, name, alias, again, show, any)
{
	do {
		again = 0
		for (alias in same_type)
			if (mentions(text, alias) && !mentions(text, same_type[alias])) {
				text = text "\n" same_type[alias]
				again = 1
			}
		for (i = 1; i <= type_n; i++) {
			name = type_name[i]
			if (!(name in show) && mentions(text, name)) {
				show[name] = 1
				text = text "\n" type_text[name]
				again = 1
			}
		}
	} while (again)
	for (i = 1; i <= type_n; i++) {
		name = type_name[i]
		if (!(name in show))
			continue
		print any ? ".PP" : ".SH TYPES AND CONSTANTS" > file
		any = 1
		literal(type_text[name])
	}
}

# "Return: 0; -EINVAL: what; -ENOMEM." becomes RETURN VALUE and ERRORS.
function results(name,  part, n, i, s, plain, rest, errors, key, any)
{
	if (ret[name] == "")
		return
	n = split(ret[name], part, /;[ \n]+/)
	plain = ""
	rest = ""
	errors = 0
	for (i = 1; i <= n; i++) {
		s = part[i]
		sub(/^or /, "", s)
		if (s ~ /^-E[A-Z0-9]+/)
			errors++
		else if (!errors) {
			plain = plain (plain == "" ? "" : "; ") s
			continue
		} else {
			rest = rest (rest == "" ? "" : "; ") s
			continue
		}
		error_text[errors] = s
	}
	print ".SH RETURN VALUE" > file
	sub(/\.$/, "", plain)
	fill(plain (errors ? "; on failure one of the errors below." : "."))
	if (!errors)
		return
	print ".SH ERRORS" > file
	for (i = 1; i <= errors; i++) {
		s = error_text[i]
		sub(/\.$/, "", s)
		key = s
		if (match(key, /^-E[A-Z0-9]+((, | and | or )-E[A-Z0-9]+)*/)) {
			key = substr(s, 1, RLENGTH)
			s = substr(s, RLENGTH + 1)
		}
		sub(/^:? */, "", s)
		print ".TP" > file
		put(mark(key))
		fill(s == "" ? meaning(key) : toupper(substr(s, 1, 1)) substr(s, 2) ".")
	}
	if (rest != "") {
		sub(/\.$/, "", rest)
		print ".PP" > file
		fill("Also: " rest ".")
	}
}

function meaning(e)
{
	if (e == "-ENOMEM") return "Out of memory."
	if (e == "-ENODEV") return "There is no such device."
	if (e == "-EINVAL") return "An argument is not valid."
	if (e == "-ECHILD") return "The object belongs to the parent process."
	if (e == "-EACCES") return "Permission denied."
	return "See \\fBerrno\\fR(3)."
}

# Calls of the same group and those that the text names, in order.
function see_also(name,  i, j, n, list, t)
{
	n = 0
	for (i = 1; i <= call_n; i++)
		if (call[i] != name && (call[i] in seen || call_group[call[i]] == call_group[name]))
			list[++n] = call[i]
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && list[j] < list[j - 1]; j--) {
			t = list[j]
			list[j] = list[j - 1]
			list[j - 1] = t
		}
	print ".SH SEE ALSO" > file
	for (i = 1; i <= n; i++)
		print ".BR " list[i] " (3)," > file
	print ".BR " stem " (7)" > file
}

function call_page(name,  i, text, lines)
{
	title(name, 3)
	put(name " \\- " mark(summary[name]))
	synopsis(name)
	for (i in seen)
		delete seen[i]
	text = proto[name] "\n" summary[name] "\n" ret[name]
	started = 0
	for (i = 1; i <= body_n[name]; i++) {
		lines[i] = body[name, i]
		text = text "\n" body[name, i]
	}
	print ".SH DESCRIPTION" > file
	paragraphs(lines, body_n[name], 0)
	if (!started)
		fill(toupper(substr(summary[name], 1, 1)) substr(summary[name], 2) ".")
	if (param_n[name])
		print ".SH PARAMETERS" > file
	for (i = 1; i <= param_n[name]; i++) {
		print ".TP" > file
		print ".I " param[name, i] > file
		fill(param_text[name, i])
		text = text "\n" param_text[name, i]
	}
	results(name)
	types(text)
	see_also(name)
	close(file)
}

function overview_page(  i, s, g)
{
	for (i = 1; i <= overview_n && overview[i] == ""; i++)
		;
	title(stem, 7)
	for (s = ""; i <= overview_n && overview[i] != ""; i++)
		s = s (s == "" ? "" : " ") overview[i]
	sub(/\. .*/, "", s)
	sub(/\.$/, "", s)
	put(stem " \\- " mark(s))
	synopsis_head()
	if (pkg != "") {
		print ".PP" > file
		put("cc \\fIFILE\\fR.c $(pkg\\-config \\-\\-cflags \\-\\-libs " esc(pkg) ")")
	}
	print ".fi" > file
	print ".SH DESCRIPTION" > file
	started = 0
	paragraphs(overview, overview_n, 1)
	print ".SH CALLS" > file
	g = ""
	for (i = 1; i <= call_n; i++) {
		if (call_group[call[i]] != g) {
			g = call_group[call[i]]
			print ".SS " toupper(substr(g, 1, 1)) substr(g, 2) > file
		}
		print ".TP" > file
		print ".BR " call[i] " (3)" > file
		fill(summary[call[i]])
	}
	close(file)
}

END {
	close_group()
	for (k = 1; k <= call_n; k++)
		if (ret[call[k]] == "" && proto[call[k]] !~ /^void [A-Za-z_]/)
			inherit_return(call[k])
	if (in_doc || decl != "")
		fail(FNR, "the file ends inside a comment or declaration")
	if (!call_n)
		fail(FNR, "no documented call")
	base = FILENAME
	sub(/.*\//, "", base)
	stem = base
	sub(/\.h$/, "", stem)
	if (failed)
		exit 1
	for (k = 1; k <= call_n; k++)
		call_page(call[k])
	if (overview_n)
		overview_page()
}

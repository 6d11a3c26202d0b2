# SPDX-License-Identifier: GPL-2.0-only
# For vm/coverage: gcov's lines of all sources in, the report out.
# -v reasons=FILE: lines "SOURCE FUNCTION TEXT | REASON"; TEXT is the beginning of the line.

function trim(s)
{
	gsub(/^[ \t]+|[ \t]+$/, "", s)
	return s
}

function escape(s)
{
	gsub(/\|/, "\\|", s)
	return s
}

BEGIN {
	while ((getline line <reasons) > 0) {
		if (line ~ /^#/ || line !~ /\|/)
			continue
		cut = index(line, " | ")
		split(line, word, " ")
		n_reasons++
		r_file[n_reasons] = word[1]
		r_function[n_reasons] = word[2]
		r_text[n_reasons] = trim(substr(line, length(word[1]) + length(word[2]) + 3,
						cut - length(word[1]) - length(word[2]) - 3))
		r_why[n_reasons] = substr(line, cut + 3)
	}
}

# "   COUNT:  LINE:TEXT"; the first lines of a file are LINE 0, Source: among them
{
	count = $0
	sub(/:.*/, "", count)
	count = trim(count)
	rest = substr($0, index($0, ":") + 1)
	number = rest
	sub(/:.*/, "", number)
	number += 0
	text = substr(rest, index(rest, ":") + 1)
}

number == 0 {
	if (text ~ /^Source:/) {
		file = substr(text, 8)
		ours = file ~ /src\/module\/[^\/]*\.[ch]$/
		sub(/.*\//, "", file)
	}
	next
}

!ours { next }

# a header's functions are counted once for each file that has them
{
	if (!((file, number) in line_text)) {
		line_text[file, number] = text
		if (number > last[file])
			last[file] = number
		if (!(file in seen)) {
			seen[file] = 1
			files[++n_files] = file
		}
	}
	if (count != "-") {
		code[file, number] = 1
		if (count !~ /^[#=]/) {
			sub(/\*$/, "", count)
			hits[file, number] += count
		}
	}
}

function why(file, name, text,   i)
{
	for (i = 1; i <= n_reasons; i++)
		if (r_file[i] == file && r_function[i] == name && index(text, r_text[i]) == 1) {
			r_used[i] = 1
			return r_why[i]
		}
	return ""
}

function fail(what)
{
	complaints[++n_complaints] = what
}

# The label's own code: the first line behind it that has any.
function label_hits(file, at,   i)
{
	for (i = at; i <= last[file]; i++)
		if ((file, i) in code)
			return hits[file, i] + 0
	return 0
}

function walk(file,   i, text, name, h, label, reason)
{
	name = ""
	for (i = 1; i <= last[file]; i++) {
		text = line_text[file, i]
		if (text ~ /^[A-Za-z_].*\(/ && text !~ /;[ \t]*$/) {
			name = text
			sub(/\(.*/, "", name)
			sub(/.*[ *]/, "", name)
		}
		if (text ~ /^[a-z_]+:$/) {
			label = text
			sub(/:/, "", label)
			n_labels++
			h = label_hits(file, i)
			reason = h ? "" : why(file, name, label ":")
			if (!h) {
				labels_missed++
				if (reason == "")
					fail(file ":" i ": label " label " not reached, and no reason")
			}
			label_rows[n_labels] = "| `" file "` | `" name "` | `" label "` | " \
					       (h ? h : "**not reached**: " reason) " |"
		}
		if (!((file, i) in code))
			continue
		n_code++
		if (hits[file, i])
			continue
		n_missed++
		reason = why(file, name, trim(text))
		if (reason == "")
			fail(file ":" i ": " name ": " trim(text))
		line_rows[n_missed] = "| `" file "` | `" name "` | `" escape(trim(text)) "` | " \
				      reason " |"
	}
}

END {
	for (i = 1; i <= n_files; i++)
		for (j = i + 1; j <= n_files; j++)
			if (files[j] < files[i]) {
				t = files[i]
				files[i] = files[j]
				files[j] = t
			}
	for (i = 1; i <= n_files; i++)
		walk(files[i])
	for (i = 1; i <= n_reasons; i++)
		if (!r_used[i])
			fail("no such line is unreached: " r_file[i] " " r_function[i] " " r_text[i])
	if (n_labels < 8)
		fail("only " n_labels " labels found")
	if (labels_missed * 20 >= n_labels)
		fail(labels_missed " of " n_labels " labels not reached")
	print "# What the module's tests reach"
	print ""
	print "Made by `make coverage-module`, which runs the tests below on kernel " release
	print "and counts with gcov what is executed of `phxfs.ko` and `phxfs-sim.ko`. A line"
	print "that is not reached has its reason in `module/test/not-reached`."
	print ""
	print "Tests: " tests "."
	print ""
	print "## Labels that a goto jumps to"
	print ""
	print "| file | function | label | reached |"
	print "|---|---|---|---|"
	for (i = 1; i <= n_labels; i++)
		print label_rows[i]
	print ""
	print "## Lines not reached"
	print ""
	print "| file | function | line | why |"
	print "|---|---|---|---|"
	for (i = 1; i <= n_missed; i++)
		print line_rows[i]
	print ""
	for (i = 1; i <= n_complaints; i++)
		print "FAIL " complaints[i]
	printf "%d of %d labels and %d of %d lines reached.\n", n_labels - labels_missed, n_labels,
	       n_code - n_missed, n_code
	exit n_complaints > 0
}

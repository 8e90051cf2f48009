#!/usr/bin/env bash
# markdownify 1.2.3, html2text 2025.4.15, beautifulsoup4 4.15.0: a page as the text that a browsing tool gives to an agent
#
# Guess: the words and addresses of the page, with more or less layout.
# Behaviour: markdownify writes backslashes into names and formulas outside of code. html2text breaks lines at 78 characters, within
# addresses too. BeautifulSoup's `get_text` joins the cells of a table to one number, and with a separator it cuts words that
# have a bold part. All three drop what a field holds, and which choice is selected.
. "$(dirname "$0")/common.sh"
packages markdownify==1.2.3 html2text==2025.4.15 beautifulsoup4==4.15.0

cat >page.py <<'PYTHON'
import html2text
from bs4 import BeautifulSoup
from markdownify import markdownify
def soup(html, separator=""):
    return BeautifulSoup(html, "html.parser").get_text(separator)
print(markdownify("<p>user_id is 5*3*2</p>").strip())
link = html2text.html2text(f"<a href='https://example.com/{'task-' * 14}7'>open</a>")
print(link.strip().count("\n"), f"{'task-' * 14}7" in link)
table = "<table><tr><td>12</td><td>7</td></tr></table>"
print(soup(table), "/", soup("<b>un</b>paid", " "), "/", soup("10<sup>2</sup>"))
form = "<input value='42'><select><option>one</option><option selected>two</option></select>"
print(*(convert(form).strip() for convert in (markdownify, html2text.html2text, soup)))
PYTHON
python page.py >out
seen "user_id is 5*3*2, by markdownify" "$(sed -n 1p out)" 'user\_id is 5\*3\*2'
seen "line ends within a link, by html2text; is the address in it?" "$(sed -n 2p out)" "1 False"
seen "cells 12 and 7, a word with a bold part, 10 to the power 2, by BeautifulSoup" "$(sed -n 3p out)" "127 / un paid / 102"
seen "a field with 42, and the second of two choices, by the three" "$(sed -n 4p out)" "onetwo onetwo onetwo"

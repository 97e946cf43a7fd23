// The style of every report: readable on a phone, on paper and in the dark.
#pragma once

#include <string_view>

namespace roundoff::study {

inline constexpr std::string_view kPageStyle = R"css(
:root { color-scheme: light dark; --text: #1b1f24; --paper: #ffffff; --quiet: #57606a;
  --line: #d0d7de; --soft: #f6f8fa; --link: #0550ae; --ok: #116329; --bad: #a40e26; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --paper: #14181d; --quiet: #9aa4af; --line: #3a424b; --soft: #1d232a;
    --link: #79b8ff; --ok: #6fdd8b; --bad: #ff9492; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1rem; max-width: 56rem; color: var(--text);
  background: var(--paper); font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
a { color: var(--link); }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.3rem 0; }
h2 { font-size: 1.25rem; margin: 2rem 0 0.6rem; padding-top: 0.6rem;
  border-top: 1px solid var(--line); }
.question { font-size: 1.1rem; margin: 0.4rem 0; }
.facts, .seen, .note, .unit, .files, .again, .up { color: var(--quiet); font-size: 0.9rem; }
p.seen { margin: 0; }
p.note { margin: 0.2rem 0; }
.ok { color: var(--ok); font-weight: 600; white-space: nowrap; }
.bad { color: var(--bad); font-weight: 600; white-space: nowrap; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; margin: 0.8rem 0; padding: 0;
  list-style: none; font-size: 0.9rem; }
.claims { padding-left: 1.4rem; }
.claims li { margin: 0.7rem 0; }
.claims p { margin: 0; }
figure { margin: 1.2rem 0 2rem; }
.plot { background: #ffffff; border: 1px solid var(--line); border-radius: 4px; padding: 0.3rem;
  max-width: 44rem; }
.plot svg { display: block; width: 100%; height: auto; }
figcaption { margin-top: 0.5rem; max-width: 44rem; }
.missing { padding: 0.6rem; border: 1px dashed var(--line); }
.table { margin: 1.2rem 0 2rem; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0; font-size: 1rem; }
th, td { padding: 0.25rem 0.9rem 0.25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: normal; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; }
th.n, td.n { text-align: right; }
td.n { white-space: nowrap; }
th { max-width: 11rem; }
th:not(.n), td:not(.n) { min-width: 5.5rem; max-width: 28rem; }
th.n { min-width: 4.5rem; }
table.facts td { overflow-wrap: anywhere; }
.tag { display: inline-block; padding: 0 0.35rem; border: 1px solid var(--line);
  border-radius: 0.7rem; font-size: 0.72rem; font-weight: 400; color: var(--quiet);
  white-space: nowrap; }
pre { background: var(--soft); padding: 0.7rem; border-radius: 4px; overflow-x: auto;
  font-size: 0.82rem; line-height: 1.4; overflow-wrap: normal; }
code { font-size: 0.88em; }
summary { cursor: pointer; margin: 0.5rem 0; }
@media print {
  :root { --text: #000; --paper: #fff; --quiet: #333; --line: #999; --soft: #f2f2f2;
    --link: #000; --ok: #000; --bad: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, .up { display: none; }
  figure, .claims li, tr { break-inside: avoid; }
  .plot { max-width: 11cm; }
  h2 { break-after: avoid; }
  .scroll, pre { overflow: visible; white-space: pre-wrap; }
  table { font-size: 8pt; white-space: normal; }
  td.n { white-space: normal; }
  th:not(.n), td:not(.n), th.n { min-width: 0; }
}
)css";

}  // namespace roundoff::study


"use strict";
// A cell of a CSV file. A spreadsheet takes a text that begins with one of these characters for a formula; with an
// apostrophe in front it is text (numaloc_files::cell has the same rule).
const csvCell = (field) => {
  const text = /^'*[=+\-@\t\r]/.test(field) && Number.isNaN(Number(field)) ? `'${field}` : field;
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
};

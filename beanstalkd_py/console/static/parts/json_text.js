/* Indents JSON without parsing its values: numbers, escapes and duplicate keys stay as they are in the text. */
const INDENT = "  ";
const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/* Return the indented text, or null if the text is no JSON object or array. */
export function indentJson(text) {
  try {
    const value = JSON.parse(text);
    if (typeof value !== "object" || value === null) return null;
  } catch {
    return null;
  }
  const tokens = text.match(TOKEN);
  let depth = 0;
  let result = "";
  const line = () => "\n" + INDENT.repeat(depth);
  tokens.forEach((token, at) => {
    const isEmpty = (token === "{" && tokens[at + 1] === "}") || (token === "[" && tokens[at + 1] === "]");
    if (token === "{" || token === "[") {
      depth += 1;
      result += token + (isEmpty ? "" : line());
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const wasEmpty = tokens[at - 1] === "{" || tokens[at - 1] === "[";
      result += (wasEmpty ? "" : line()) + token;
    } else if (token === ",") result += token + line();
    else if (token === ":") result += ": ";
    else result += token;
  });
  return result;
}

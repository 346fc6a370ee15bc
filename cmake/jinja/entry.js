// The part of @huggingface/jinja that the runtime calls; it becomes the global object Jinja.
export { Environment, Interpreter, Template, parse, tokenize } from "@huggingface/jinja";

// QuickJS has no Intl; strftime_now() needs the month's name of a date, and templates mean the English one.
const months = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
  "November", "December"];
globalThis.Intl ??= {
  DateTimeFormat: class {
    constructor(_locale, options) {
      this.length = options.month === "short" ? 3 : undefined;
    }
    format(date) {
      return months[date.getMonth()].slice(0, this.length);
    }
  },
};

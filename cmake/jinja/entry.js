// The part of @huggingface/jinja that the runtime calls; it becomes the global object Jinja.
export { Environment, Interpreter, Template, parse, tokenize } from "@huggingface/jinja";

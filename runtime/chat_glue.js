// chat_glue.js: between the C side (chat.c) and the template engine (the global Jinja): evaluates to {compile, render}.
//
// Owns: how OpenAI's request objects become what templates read, as the templates' authors tested them with transformers:
// content is a string, a tool call's arguments are an object. Does not own: the engine, limits, error conversion.
// Invariants: no state; a message of an Error thrown here is fit for the client.
(() => {
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

  const textOf = (content, where) => {
    if (content === null || content === undefined) return "";
    if (typeof content === "string") return content;
    if (!Array.isArray(content)) throw new Error(`${where}.content: must be a string or an array of parts`);
    return content
      .map((part, i) => {
        if (isObject(part) && part.type === "text" && typeof part.text === "string") return part.text;
        const type = isObject(part) ? JSON.stringify(part.type) : typeof part;
        throw new Error(`${where}.content[${i}]: a part of type ${type} is not served, only "text" with a text`);
      })
      .join("\n");
  };

  const callOf = (call, where) => {
    if (!isObject(call) || !isObject(call.function) || typeof call.function.name !== "string")
      throw new Error(`${where}: must be an object with a function that has a name`);
    let args = call.function.arguments;
    if (typeof args === "string") {
      try {
        const parsed = JSON.parse(args);
        if (isObject(parsed)) args = parsed;
      } catch {
        // What is no JSON reaches the template as the string that it is.
      }
    }
    return { ...call, function: { ...call.function, arguments: args } };
  };

  const messageOf = (message, i) => {
    const where = `messages[${i}]`;
    if (!isObject(message)) throw new Error(`${where}: must be an object`);
    if (typeof message.role !== "string") throw new Error(`${where}.role: must be a string`);
    const result = { ...message, content: textOf(message.content, where) };
    // gpt-oss's template reads the reasoning of earlier answers by this name.
    if (typeof message.reasoning_content === "string" && result.thinking === undefined)
      result.thinking = message.reasoning_content;
    if (message.tool_calls === null || message.tool_calls === undefined) {
      delete result.tool_calls;
    } else {
      if (!Array.isArray(message.tool_calls)) throw new Error(`${where}.tool_calls: must be an array`);
      result.tool_calls = message.tool_calls.map((call, j) => callOf(call, `${where}.tool_calls[${j}]`));
    }
    return result;
  };

  const parse = (text, name) => {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Error(`${name}: not JSON: ${error.message}`);
    }
  };

  const ofTemplate = (run) => {
    try {
      return run();
    } catch (error) {
      throw new Error(`chat template: ${error.message}`);
    }
  };

  return {
    compile: (source) => ofTemplate(() => new Jinja.Template(source)),

    render: (template, bos, eos, messagesText, toolsText, extraText) => {
      const messages = parse(messagesText, "messages");
      if (!Array.isArray(messages)) throw new Error("messages: must be an array");
      const tools = toolsText === null ? null : parse(toolsText, "tools");
      if (tools !== null && !Array.isArray(tools)) throw new Error("tools: must be an array");
      const extra = extraText === null ? {} : parse(extraText, "template variables");
      if (!isObject(extra)) throw new Error("template variables: must be an object");
      const variables = {
        add_generation_prompt: true,
        ...extra,
        messages: messages.map(messageOf),
        tools: tools !== null && tools.length > 0 ? tools : null,
        bos_token: bos,
        eos_token: eos,
      };
      return ofTemplate(() => template.render(variables));
    },
  };
})();

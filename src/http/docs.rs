//! `/docs`: the published document as one page for people.
//!
//! Written here, once, at start-up: a page without scripts needs no vendored bundle that would outweigh the service and
//! would have to be allowed to run. Its policy lets nothing in but its own style sheet.

use std::fmt::Write;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use serde_json::Value;

use super::HttpState;
use super::code::Code;

const STYLE: &str = include_str!("docs.css");
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) async fn page(State(state): State<HttpState>) -> Response {
    html(state.docs())
}

/// A page that nothing may be loaded into, and that no other page may show as a part of itself.
pub(super) fn html(page: impl Into<Body>) -> Response {
    let mut response = typed(page, "text/html; charset=utf-8");
    response.headers_mut().insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    );
    response
}

pub(super) async fn style() -> Response {
    typed(STYLE, "text/css; charset=utf-8")
}

fn typed(body: impl Into<Body>, content_type: &'static str) -> Response {
    let mut response = Response::new(body.into());
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The page of a document.
pub(super) fn render(document: &str) -> Bytes {
    let document: Value = serde_json::from_str(document).unwrap_or_default();
    let mut page = Page::default();
    page.head(&document);
    let operations = operations(&document);
    page.contents(&operations, &document);
    for operation in &operations {
        page.operation(operation);
    }
    page.0
        .push_str("<h2 id=\"problems\">Problems</h2>\n<table>\n");
    page.row("th", &["Code", "Status", "Retry", "Meaning"]);
    for code in Code::ALL {
        let word = code.as_str();
        let status = code.status().as_u16();
        page.put(format_args!(
            "<tr><td><a href=\"/problems/{word}\"><code>{word}</code></a></td><td>{status}</td><td><code>{}</code></td><td>{}</td></tr>\n",
            code.retry().as_str(),
            prose(code.meaning())
        ));
    }
    page.0
        .push_str("</table>\n<h2 id=\"schemas\">Schemas</h2>\n");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        page.schema(name, schema);
    }
    page.0.push_str("</main>\n</html>\n");
    page.0.into()
}

struct Operation<'a> {
    path: &'a str,
    method: String,
    id: &'a str,
    said: &'a Value,
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let paths = entries(&document["paths"]);
    let all = paths.flat_map(|(path, item)| {
        entries(item).filter_map(move |(method, said)| {
            Some(Operation {
                path,
                method: method.to_uppercase(),
                id: said["operationId"].as_str()?,
                said,
            })
        })
    });
    all.collect()
}

fn entries(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let entries = object.as_object().into_iter().flatten();
    entries.map(|(name, value)| (name.as_str(), value))
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = self.0.write_fmt(text);
    }

    /// Cells are HTML already.
    fn row(&mut self, cell: &str, cells: &[&str]) {
        self.0.push_str("<tr>");
        for text in cells {
            self.put(format_args!("<{cell}>{text}</{cell}>"));
        }
        self.0.push_str("</tr>\n");
    }

    fn head(&mut self, document: &Value) {
        let info = &document["info"];
        self.put(format_args!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{title} API</title>\n<link rel=\"stylesheet\" href=\"/docs/style.css\">\n<main>\n<h1>{title} API <small>{version}</small></h1>\n\
             <p>{said}</p>\n<p>The same for programs: <a href=\"/openapi.json\">openapi.json</a>, \
             and in OpenAPI 3.0 <a href=\"/openapi-3.0.json\">openapi-3.0.json</a>.</p>\n",
            title = plain(&info["title"]),
            version = plain(&info["version"]),
            said = prose_of(&info["description"]),
        ));
        for (_, scheme) in entries(&document["components"]["securitySchemes"]) {
            let said = prose_of(&scheme["description"]);
            self.put(format_args!(
                "<p><code>Authorization: Bearer</code> and an API key. {said}</p>\n"
            ));
        }
    }

    fn contents(&mut self, operations: &[Operation<'_>], document: &Value) {
        self.0.push_str("<nav>\n<ul>\n");
        for operation in operations {
            self.put(format_args!(
                "<li><a href=\"#{}\"><code>{} {}</code></a> {}</li>\n",
                escape(operation.id),
                operation.method,
                escape(operation.path),
                prose_of(&operation.said["summary"]),
            ));
        }
        self.0
            .push_str("<li><a href=\"#problems\">Problems</a></li>\n<li>Schemas: ");
        let names = entries(&document["components"]["schemas"]);
        let links: Vec<String> = names
            .map(|(name, _)| format!("<a href=\"#{0}\">{0}</a>", escape(name)))
            .collect();
        self.0.push_str(&links.join(", "));
        self.0.push_str("</li>\n</ul>\n</nav>\n");
    }

    fn operation(&mut self, operation: &Operation<'_>) {
        let Operation {
            path,
            method,
            id,
            said,
        } = operation;
        self.put(format_args!(
            "<section>\n<h2 id=\"{}\"><code>{method} {}</code></h2>\n<p><strong>{}.</strong> {}</p>\n",
            escape(id),
            escape(path),
            prose_of(&said["summary"]),
            prose_of(&said["description"]),
        ));
        if let Some(parameters) = said["parameters"].as_array() {
            self.0.push_str("<h3>Parameters</h3>\n<table>\n");
            self.row("th", &["Name", "In", "Type", "Meaning"]);
            for each in parameters {
                let required = each["required"] == true;
                let name = named(each["name"].as_str().unwrap_or_default(), required);
                let meaning = with_example(&each["description"], &each["example"]);
                let kind = kind(&each["schema"]);
                self.row("td", &[&name, &plain(&each["in"]), &kind, &meaning]);
            }
            self.0.push_str("</table>\n");
        }
        let body = &said["requestBody"];
        if body.is_object() {
            self.put(format_args!(
                "<h3>Body</h3>\n<p>{}: {}</p>\n",
                content(&body["content"]),
                prose_of(&body["description"])
            ));
        }
        self.0.push_str("<h3>Answers</h3>\n<table>\n");
        self.row("th", &["Status", "Body", "Meaning"]);
        for (status, response) in entries(&said["responses"]) {
            let meaning = prose_of(&response["description"]);
            let cells = [escape(status), content(&response["content"]), meaning];
            self.row("td", &[&cells[0], &cells[1], &cells[2]]);
        }
        self.0.push_str("</table>\n</section>\n");
    }

    fn schema(&mut self, name: &str, schema: &Value) {
        self.put(format_args!(
            "<section>\n<h3 id=\"{0}\">{0}</h3>\n<p>{1}</p>\n",
            escape(name),
            prose_of(&schema["description"])
        ));
        if schema["properties"].is_object() {
            self.0.push_str("<table>\n");
            self.row("th", &["Field", "Type", "Meaning"]);
            for (field, said) in entries(&schema["properties"]) {
                let required = schema["required"].as_array();
                let required = required.is_some_and(|names| names.iter().any(|name| name == field));
                let meaning = with_example(&said["description"], &said["example"]);
                self.row("td", &[&named(field, required), &kind(said), &meaning]);
            }
            self.0.push_str("</table>\n");
        } else {
            self.put(format_args!("<p>{}</p>\n", kind(schema)));
        }
        self.0.push_str("</section>\n");
    }
}

fn named(name: &str, required: bool) -> String {
    let name = escape(name);
    if required {
        format!("<code>{name}</code> <em>required</em>")
    } else {
        format!("<code>{name}</code>")
    }
}

fn with_example(description: &Value, example: &Value) -> String {
    let said = prose_of(description);
    match example {
        Value::Null => said,
        Value::String(text) => format!(
            "{said} <small>Example: <code>{}</code></small>",
            escape(text)
        ),
        other => format!(
            "{said} <small>Example: <code>{}</code></small>",
            escape(&other.to_string())
        ),
    }
}

fn content(content: &Value) -> String {
    let all = entries(content).map(|(media, body)| {
        let media = escape(media);
        format!("<code>{media}</code> {}", kind(&body["schema"]))
    });
    all.collect::<Vec<_>>().join(", ")
}

/// A schema in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|to| to.rsplit('/').next()) {
        return format!("<a href=\"#{0}\">{0}</a>", escape(name));
    }
    if let Some(one) = schema["oneOf"].as_array().and_then(|all| all.last()) {
        return kind(one);
    }
    if schema["type"] == "array" {
        return format!("array of {}", kind(&schema["items"]));
    }
    let mut words = vec![plain(&schema["type"])];
    let listed = schema["enum"].as_array().map(|words| ("one of", words));
    let open = schema["x-extensible-enum"].as_array();
    if let Some((label, values)) = listed.or_else(|| open.map(|words| ("such as", words))) {
        let values: Vec<String> = values
            .iter()
            .map(|word| format!("<code>{}</code>", plain(word)))
            .collect();
        words.push(format!("{label} {}", values.join(", ")));
    }
    for (key, label) in [
        ("format", ""),
        ("minimum", "from "),
        ("maximum", "to "),
        ("maxLength", "up to "),
        ("maxItems", "up to "),
        ("default", "default "),
    ] {
        let value = &schema[key];
        if !value.is_null() {
            words.push(format!("{label}{}", plain(value)));
        }
    }
    words.join(", ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => escape(text),
        other => escape(&other.to_string()),
    }
}

fn prose_of(value: &Value) -> String {
    prose(value.as_str().unwrap_or_default())
}

/// What stands between two backticks is code.
fn prose(text: &str) -> String {
    let mut html = String::new();
    for (index, part) in text.split('`').enumerate() {
        let is_code = index % 2 == 1;
        html.push_str(if is_code { "<code>" } else { "" });
        html.push_str(&escape(part));
        html.push_str(if is_code { "</code>" } else { "" });
    }
    html
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_operation_schema_and_code_and_every_link_leads_somewhere() {
        let page = render(super::super::openapi::COMMITTED);
        let page = std::str::from_utf8(&page).unwrap();
        for id in [
            "create_charge",
            "list_charges",
            "get_charge_timeline",
            "get_policy",
        ] {
            assert!(page.contains(&format!("<h2 id=\"{id}\">")), "{id}");
        }
        for code in Code::ALL {
            assert!(page.contains(&format!("/problems/{}\"", code.as_str())));
        }
        let targets = page
            .split("href=\"#")
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        for target in targets {
            assert!(page.contains(&format!("id=\"{target}\"")), "{target}");
        }
        assert!(!page.contains("<script") && !page.contains("style=\""));
    }

    #[test]
    fn text_is_never_markup() {
        assert_eq!(
            prose("a `<b>` & \"c\""),
            "a <code>&lt;b&gt;</code> &amp; &quot;c&quot;"
        );
        let page = render(
            r#"{"info":{"title":"<script>"},"paths":{"/<i>":{"get":{"operationId":"<u>"}}}}"#,
        );
        let page = std::str::from_utf8(&page).unwrap();
        assert!(!page.contains("<script>") && !page.contains("<i>") && !page.contains("<u>"));
    }
}

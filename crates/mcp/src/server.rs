//! The protocol. In: requests of an agent. Out: the table of tools; the answer of one.

use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};

use crate::Host;
use crate::answers::Answers;
use crate::tools::{self, TOOLS};

const INSTRUCTIONS: &str = "\
clew records one run of a program exactly; these tools look at such a recording, forwards and backwards in time. Begin with `list`, \
then `why` for a recording that failed. Every answer tells positions (such as 1204+77+3): pass one as `at` to stand there. Then \
`stack`, `locals`, `evaluate`, `source` tell about that moment; `last_change`, `history`, `calls`, `slice` and `origin` lead to \
others. Nothing that you ask changes a recording.";

struct Server {
    answers: Arc<Mutex<Answers>>,
    may_record: bool,
}

impl Server {
    fn tools(&self) -> impl Iterator<Item = &'static tools::Tool> {
        let may_record = self.may_record;
        TOOLS.iter().filter(move |tool| may_record || !tool.runs)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().build();
        info.server_info = Implementation::new("clew", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.into());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let told = self.tools().map(|tool| {
            let mut hints = ToolAnnotations::default();
            hints.read_only_hint = Some(!tool.runs);
            Tool::new(tool.name, tool.what, Arc::new(tool.schema())).with_annotations(hints)
        });
        Ok(ListToolsResult {
            tools: told.collect(),
            ..ListToolsResult::default()
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.tools().find(|tool| tool.name == request.name) else {
            let known: Vec<&str> = self.tools().map(|tool| tool.name).collect();
            let mut why = format!(
                "there is no tool {}; there are: {}",
                request.name,
                known.join(", ")
            );
            if TOOLS.iter().any(|tool| tool.name == request.name) {
                why = format!(
                    "{} runs programs; that is allowed by `clew mcp --allow-record` only",
                    request.name
                );
            }
            return Ok(CallToolResult::error(vec![ContentBlock::text(why)]).into());
        };
        let given = request.arguments.unwrap_or_default();
        let answers = self.answers.clone();
        let cancel = context.ct.clone();
        // A replay may take a while; the protocol goes on meanwhile.
        let told = tokio::task::spawn_blocking(move || {
            let mut answers = answers.lock().unwrap_or_else(|e| e.into_inner());
            answers.answer(tool, &given, Box::new(move || cancel.is_cancelled()))
        });
        let told = told
            .await
            .unwrap_or_else(|_| Err("clew's own mistake: this question ended it".into()));
        Ok(match told {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(why) => CallToolResult::error(vec![ContentBlock::text(why)]),
        }
        .into())
    }
}

pub fn serve(host: Box<dyn Host>, may_record: bool) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let server = Server {
            answers: Arc::new(Mutex::new(Answers::new(host))),
            may_record,
        };
        let running = server.serve(rmcp::transport::stdio());
        let running = running.await.map_err(|error| error.to_string())?;
        running.waiting().await.map_err(|error| error.to_string())?;
        Ok(())
    })
}

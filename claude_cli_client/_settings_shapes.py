"""The shape of settings: what the CLI takes in them. Tables, and the small language they are written in.

Pure. Where one thing in settings has a wrong shape, the CLI drops all of them, with every rule that denies
something, and says nothing. So what it would drop is found before it is started. What it ignores, repairs
or does not know is let alone: a newer CLI has more settings than these, and takes more in them.
`tests/test_real_settings.py` holds each row against the CLI (seen with 2.1.332).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from ._hook_events import HOOK_EVENTS


class Wrong(NamedTuple):
    """What stands at `place` (keys and indexes with dots between) is not what it `must` be."""

    place: str
    must: str
    seen: str


class Shape(Protocol):
    """What a value must be. `find` gives the first thing in it that is wrong, or None."""

    def find(self, value: Any, place: str) -> Wrong | None: ...


# --- the language


class Kind(NamedTuple):
    """A value that is judged as a whole."""

    must: str
    fits: Callable[[Any], bool]

    def find(self, value: Any, place: str) -> Wrong | None:
        return None if self.fits(value) else Wrong(place, self.must, _seen(value))


class Words(NamedTuple):
    """One of these words."""

    words: tuple[str, ...]

    def find(self, value: Any, place: str) -> Wrong | None:
        if isinstance(value, str) and value in self.words:
            return None
        must = f"one of {', '.join(self.words)}" if len(self.words) > 1 else f"the word {self.words[0]}"
        return Wrong(place, must, repr(value[:40]) if isinstance(value, str) else _seen(value))


class Object(NamedTuple):
    """An object. `needs` names the fields that must be there; what `fields` does not have must be as `others`."""

    fields: Mapping[str, Shape]
    needs: tuple[str, ...] = ()
    others: Shape | None = None

    def find(self, value: Any, place: str) -> Wrong | None:
        if not isinstance(value, Mapping):
            return Wrong(place, "an object", _seen(value))
        for name in self.needs:
            if name not in value:
                return self.fields[name].find(_Missing, _below(place, name))
        parts = ((name, part, self.fields.get(name, self.others)) for name, part in value.items())
        return _first(shape.find(part, _below(place, str(name))) for name, part, shape in parts if shape)


class ListOf(NamedTuple):
    """A list, each entry of one shape."""

    entry: Shape

    def find(self, value: Any, place: str) -> Wrong | None:
        if not isinstance(value, (list, tuple)):
            return Wrong(place, "a list", _seen(value))
        return _first(self.entry.find(entry, _below(place, str(index))) for index, entry in enumerate(value))


class MapOf(NamedTuple):
    """An object with keys of any name, each value of one shape."""

    entry: Shape

    def find(self, value: Any, place: str) -> Wrong | None:
        if not isinstance(value, Mapping):
            return Wrong(place, "an object", _seen(value))
        return _first(self.entry.find(entry, _below(place, str(name))) for name, entry in value.items())


class Either(NamedTuple):
    """What the first takes, or else what the second does."""

    first: Kind
    second: Shape

    def find(self, value: Any, place: str) -> Wrong | None:
        if self.first.fits(value):
            return None
        wrong = self.second.find(value, place)
        if wrong is None or wrong.place != place or not self.first.must:
            return wrong
        return wrong._replace(must=f"{self.first.must}, or {wrong.must}")


class Tagged(NamedTuple):
    """An object whose field `type` says which of these it is."""

    types: Mapping[str, Object]

    def find(self, value: Any, place: str) -> Wrong | None:
        tag = value.get("type") if isinstance(value, Mapping) else None
        if isinstance(tag, str) and tag in self.types:
            return self.types[tag].find(value, place)
        return Object({"type": Words(tuple(self.types))}, ("type",)).find(value, place)


class _Missing:
    """Stands where a field is needed and is not there. (None will not do: that is a null.)"""


def _first(found: Iterable[Wrong | None]) -> Wrong | None:
    return next((wrong for wrong in found if wrong is not None), None)


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


_KINDS: Final[tuple[tuple[Any, str], ...]] = (
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a text"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)


def _seen(value: Any) -> str:
    """Its kind, never a text itself: that may be a key."""
    if value is _Missing:
        return "missing"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)[:20]
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")


# --- kinds


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _MOST


def _number(must: str, fits: Callable[[float], bool]) -> Kind:
    return Kind(must, lambda value: _is_number(value) and fits(value))


def _whole(least: int) -> Kind:
    """5.0 is whole, too: to the CLI it is the same number."""
    return _number(f"a whole number, {least} or more", lambda value: least <= value < 2**53 and value == int(value))


def _text(must: str, pattern: str) -> Kind:
    matches = re.compile(pattern).fullmatch
    return Kind(must, lambda value: isinstance(value, str) and matches(value) is not None)


def _each(names: str, shape: Shape) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), shape)


_MOST: Final = 1.7976931348623157e308
TEXT: Final = Kind("a text", lambda value: isinstance(value, str))
FLAG: Final = Kind("true or false", lambda value: isinstance(value, bool))
ANY: Final = Kind("anything", lambda value: True)
NULL: Final = Kind("", lambda value: value is None)
NOTHING: Final = Kind("", lambda value: value is None or (isinstance(value, (list, tuple)) and not value))
NUMBER: Final = Kind("a number", _is_number)
ABOVE_0: Final = _number("a number above 0", lambda value: value > 0)
PART: Final = _number("a number from 0 to 1", lambda value: 0 <= value <= 1)
PART_ABOVE_0: Final = _number("a number above 0, 1 at most", lambda value: 0 < value <= 1)
COUNT: Final = _whole(1)
COUNT_OR_0: Final = _whole(0)
WHOLE: Final = _number("a whole number", lambda value: abs(value) < 2**53 and value == int(value))
FILLED: Final = _text("a text that is not empty", r"(?s:.+)")
# What has no scheme is no URL to the CLI. That there is one is all that is asked: the rest is for its parser.
URL: Final = _text("a URL", r"(?s:[\s\x00-\x20]*[A-Za-z][A-Za-z0-9+.\t\r\n-]*:.*)")
CLOCK: Final = _text("a time as 22:00", r"([01]?[0-9]|2[0-3]):[0-5][0-9]")
VARIABLE: Final = _text("the name of a variable", r"[A-Za-z_][A-Za-z0-9_]*")
NAME: Final = _text("a name", r"[A-Za-z0-9_-]+")
SERVICE: Final = _text("a name, with a * at its end only", r"(?s:[^*]*\*?)")
TEXTS: Final = ListOf(TEXT)
LIST: Final = Kind("a list", lambda value: isinstance(value, (list, tuple)))
OBJECT: Final = Kind("an object", lambda value: isinstance(value, Mapping))

# --- hooks

_HOOK: Final[Mapping[str, Shape]] = {"if": TEXT, "timeout": ABOVE_0, "statusMessage": TEXT, "once": FLAG}
_ON_FAILURE: Final = Words(("continue", "block"))
HOOK: Final = Tagged(
    {
        "command": Object(
            {
                **_HOOK,
                "command": TEXT,
                "args": TEXTS,
                "shell": Words(("bash", "powershell")),
                "onFailure": _ON_FAILURE,
                **_each("async asyncRewake holdsTools", FLAG),
                **_each("rewakeMessage rewakeSummary", FILLED),
            },
            ("command",),
        ),
        "prompt": Object({**_HOOK, "prompt": TEXT, "model": TEXT, "continueOnBlock": FLAG}, ("prompt",)),
        "agent": Object({**_HOOK, "prompt": TEXT, "model": TEXT}, ("prompt",)),
        "http": Object(
            {**_HOOK, "url": URL, "headers": MapOf(TEXT), "allowedEnvVars": TEXTS, "onFailure": _ON_FAILURE}, ("url",)
        ),
        "mcp_tool": Object({**_HOOK, "server": TEXT, "tool": TEXT, "input": OBJECT}, ("server", "tool")),
    }
)
MATCHER: Final = Object({"matcher": TEXT, "hooks": ListOf(HOOK)}, ("hooks",))
# Hooks that may forbid something. With one that it cannot load, wherever it stands, the CLI drops all settings;
# of the other hooks it drops the one that is wrong.
GUARDS: Final = ("PreToolUse", "PermissionRequest", "PreSkillShellCommand")
ELSEWHERE: Final = Kind("inside of hooks", NOTHING.fits)
NO_GUARD: Final = Kind(
    f"without {', '.join(GUARDS)}, which belong into hooks",
    lambda value: not isinstance(value, Mapping) or all(NOTHING.fits(value.get(name)) for name in GUARDS),
)
HOOKS: Final = Either(
    NOTHING,
    Object(
        {
            **dict.fromkeys(HOOK_EVENTS, Either(NULL, ListOf(MATCHER))),
            "hooks": Kind(
                "inside of an event", lambda value: NO_GUARD.fits(value) and not isinstance(value, (list, tuple))
            ),
        },
        others=NO_GUARD,
    ),
)

# --- the sandbox

_CREDENTIAL_MODE: Final = Words(("deny", "mask"))
_SIGNING: Final = Words(("deny", "passthrough"))
SANDBOX: Final = Object(
    {
        **_each("enabled failIfUnavailable autoAllowBashIfSandboxed allowUnsandboxedCommands", FLAG),
        **_each("enableWeakerNestedSandbox allowNestedUserNamespaces", FLAG),
        **_each("enableWeakerNetworkIsolation allowAppleEvents", FLAG),
        "excludedCommands": TEXTS,
        "ignoreViolations": MapOf(TEXTS),
        "ripgrep": Object({"command": TEXT, "args": TEXTS}, ("command",)),
        "windows": Object({"backend": Words(("sandboxuser", "mxc"))}),
        "network": Object(
            {
                **_each("allowedDomains deniedDomains allowUnixSockets", TEXTS),
                **_each("strictAllowlist allowManagedDomainsOnly allowAllUnixSockets allowLocalBinding", FLAG),
                **_each("httpProxyPort socksProxyPort", NUMBER),
                "allowMachLookup": ListOf(SERVICE),
                "tlsTerminate": Object(_each("caCertPath caKeyPath", FILLED)),
            }
        ),
        "filesystem": Object(
            {
                **_each("allowWrite denyWrite denyRead allowRead", TEXTS),
                **_each("allowManagedReadPathsOnly disabled", FLAG),
            }
        ),
        "credentials": Object(
            {
                "files": ListOf(Object({"path": FILLED, "mode": _CREDENTIAL_MODE}, ("path", "mode"))),
                "envVars": ListOf(Object({"name": VARIABLE, "mode": _CREDENTIAL_MODE}, ("name", "mode"))),
                "allowPlaintextInject": FLAG,
                "awsPairs": ListOf(
                    Object(
                        _each("accessKeyIdVar secretAccessKeyVar sessionTokenVar", VARIABLE),
                        ("accessKeyIdVar", "secretAccessKeyVar"),
                    )
                ),
                "sigv4": Object(_each("streaming presigned sigv4a", _SIGNING)),
            }
        ),
    }
)

# --- settings

PERMISSIONS: Final = Object(
    {
        **_each("allow deny ask", LIST),  # a rule that is none is dropped alone
        "defaultMode": Words(("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan")),
        **_each("disableBypassPermissionsMode disableAutoMode", Words(("disable",))),
        **_each("blockReadsOutsideWorkingDirectories blockFileToolReadsOutsideWorkingDirectories", FLAG),
        **_each("blockWritesOutsideWorkingDirectories denyInsteadOfPrompting", FLAG),
        "additionalDirectories": TEXTS,
    }
)
_TEXTS: Final = """
$schema apiKeyHelper proxyAuthHelper awsCredentialExport awsAuthRefresh gcpAuthRefresh processWrapper
attributionProject model modelCatalogUrl modelCatalogPublicKey prUrlTemplate otelHeadersHelper outputStyle language
advisorModel agent minimumVersion requiredMinimumVersion requiredMaximumVersion downloadsMirrorUrl plansDirectory
timeFormat timeZone autoMemoryDirectory claudeMd pluginTrustMessage
"""
_FLAGS: Final = """
respectGitignore wslInheritsWindowsSettings includeCoAuthoredBy includeGitInstructions disableAllHooks
disableReplyCheck workflowKeywordTriggerEnabled bashEditDiffEnabled respondToBashCommands allowAllClaudeAiMcps
allowClaudeInChromeWithManagedMcp allowNestedModelAccessUnderForceLogin forceRemoteSettingsRefresh
spinnerTipsEnabled clawdFileProgressEnabled syntaxHighlightingDisabled terminalTitleFromRename alwaysThinkingEnabled
fastMode promptSuggestionEnabled emojiCompletionEnabled awaySummaryEnabled showClearContextOnPlanAccept
prefersReducedMotion doneMeansMerged totalTokensReminderAfterUserTurn autoMemoryEnabled autoDreamEnabled
showThinkingSummaries verbose autoCompactEnabled precomputeCompactionEnabled idleCompaction switchModelsOnFlag
autoScrollEnabled wheelScrollAccelerationEnabled showTurnDuration showMessageTimestamps terminalProgressBarEnabled
todoFeatureEnabled inputNeededNotifEnabled agentPushNotifEnabled voiceEnabled axScreenReader
"""
# A null stands for "not given" here, and nowhere else.
_FLAGS_OR_NULL: Final = """
syncClaudeAiSkills syncClaudeAiPlugins enforceAvailableModels enableAllProjectMcpServers disableClaudeAiConnectors
disableBundledSkills disableDirectMcpSkills disableAgentView disableRemoteControl disableWorkflows disableArtifact
enableArtifact enableWorkflows disableSkillShellExecution disableWindowsBashCommandSplit allowManagedHooksOnly
allowManagedPermissionRulesOnly allowManagedMcpServersOnly disableCommandPluginSources disableSideloadFlags
skipWebFetchPreflight fastModePerSessionOptIn responseComparisonEnabled channelsEnabled
skipDangerousModePermissionPrompt skipWorkflowUsageWarning autoContinueAtUsageLimit fileCheckpointingEnabled
remoteControlAtStartup isolatePeerMachines autoUploadSessions skipAutoPermissionPrompt useAutoModeDuringPlan
"""
_LISTS_OF_TEXTS: Final = """
fallbackModel availableModels allowedHttpHookUrls httpHookAllowedEnvVars
pluginSuggestionMarketplaces companyAnnouncements claudeMdExcludes
"""
# Of any shape, and not searched for hooks.
_UNSEARCHED: Final = "mcpServers lspServers managedMcpServers extraKnownMarketplaces modelSettings"
_COMMAND: Final[Mapping[str, Shape]] = {"type": Words(("command",)), "command": TEXT}
SOURCE: Final = Object({"source": TEXT}, ("source",))  # of which there are many kinds
_PLAIN: Final = Kind("a text, a number, true, false", lambda value: isinstance(value, (str, bool)) or _is_number(value))
_OPTION: Final = Either(_PLAIN, TEXTS)
_MANY: Final = ("first-wins", "merge")

SETTINGS: Final = Object(
    {
        **_each(_TEXTS, TEXT),
        **_each(_FLAGS, FLAG),
        **_each(_FLAGS_OR_NULL, Either(NULL, FLAG)),
        **_each(_LISTS_OF_TEXTS, TEXTS),
        **_each("enabledMcpjsonServers disabledMcpjsonServers", Either(NAME, TEXTS)),
        **_each("strictKnownMarketplaces allowedMarketplaces blockedMarketplaces", Either(NULL, ListOf(SOURCE))),
        "env": OBJECT,
        "enabledPlugins": MapOf(Either(FLAG, TEXTS)),
        "pluginConfigs": MapOf(Object({"mcpServers": MapOf(MapOf(_OPTION)), "options": MapOf(_OPTION)})),
        **_each(_UNSEARCHED, ANY),
        **dict.fromkeys(GUARDS, ELSEWHERE),
        "permissions": PERMISSIONS,
        "hooks": HOOKS,
        "sandbox": SANDBOX,
        "cleanupPeriodDays": COUNT,
        "desktopSessionCleanupPeriodDays": COUNT_OR_0,
        "skillListingMaxDescChars": COUNT,
        "skillListingBudgetFraction": PART_ABOVE_0,
        "feedbackSurveyRate": PART,
        "totalTokensReminderBudget": COUNT,
        "workflowSizeGuideline": Words(("unrestricted", "small", "medium", "large")),
        "defaultShell": Words(("bash", "powershell")),
        "parentSettingsBehavior": Words(_MANY),
        "managedSourcesBehavior": Words(_MANY),
        "feedbackDrafts": Either(NULL, Words(("notify", "quiet", "off"))),
        "autoUpdatesChannel": Words(("latest", "stable", "rc")),
        "tui": Words(("default", "fullscreen")),
        "totalTokensReminder": Words(("off", "infinite", "fixed", "countdown", "padded-countdown")),
        "disableAutoMode": Either(NULL, Words(("disable",))),
        "disableDeepLinkRegistration": Either(NULL, Words(("disable",))),
        "daemonColdStart": Words(("transient", "ask")),
        "defaultView": Words(("chat", "transcript")),
        "forceLoginOrgUUID": Either(TEXT, TEXTS),
        "attribution": Either(FLAG, Object({"commit": TEXT, "pr": TEXT, "sessionUrl": FLAG})),
        "statusLine": Object({**_COMMAND, "padding": NUMBER, "hideVimModeIndicator": FLAG}, ("type", "command")),
        "fileSuggestion": Object(_COMMAND, ("type", "command")),
        "breakReminder": Object(
            {"enabled": FLAG, "intervalMinutes": COUNT, "breakThresholdMinutes": COUNT, "message": TEXT}
        ),
        "quietHours": Object({"enabled": FLAG, "start": CLOCK, "end": CLOCK}),
        "modelOverrides": MapOf(TEXT),
        "skillOverrides": MapOf(Words(("on", "name-only", "user-invocable-only", "off"))),
        "worktree": Object({**_each("symlinkDirectories sparsePaths", TEXTS), "baseRef": Words(("fresh", "head"))}),
        "spinnerVerbs": Object({"mode": Words(("append", "replace")), "verbs": TEXTS}, ("mode", "verbs")),
        "remote": Object({"defaultEnvironmentId": TEXT}),
        "remoteTools": Object({"allowUnattendedServing": FLAG}),
        "voice": Object({"enabled": FLAG, "mode": Words(("hold", "tap")), "autoSubmit": FLAG}),
        "allowedChannelPlugins": ListOf(Object(_each("marketplace plugin", TEXT), ("marketplace", "plugin"))),
        "sshConfigs": ListOf(
            Object(
                {**_each("id name sshHost sshIdentityFile startDirectory", TEXT), "sshPort": WHOLE},
                ("id", "name", "sshHost"),
            )
        ),
        "autoMode": Object({**_each("allow soft_deny hard_deny environment", TEXTS), "classifyAllShell": FLAG}),
    },
    others=NO_GUARD,
)


def why_dropped(settings: Mapping[str, Any]) -> str | None:
    """What the CLI would drop these settings for, as a sentence that can stand in an error."""
    wrong = SETTINGS.find(settings, "")
    if wrong is None:
        return None
    top, _, event = wrong.place.partition(".")
    some = top == "hooks" and event.partition(".")[0] not in GUARDS
    lost = "the hook, if not all of these settings" if some else "all of these settings"
    return f"{wrong.place} must be {wrong.must}, and is {wrong.seen}; else the CLI drops {lost}"

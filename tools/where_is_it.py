"""Print docs/where-is-it.md: where gnats has the files and functions of nats-server.

Docstrings are the source: a module's names the Go files that it ports, "(accounts.go)", and any docstring may
name Go functions, "(addShadowSubscriptions)" or "(parseTLS in opts.go)". TABLE adds what they leave out.
"""

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/where-is-it.md"
UNPORTED = {"archive", "bench"}
"""Folders that port nothing of nats-server."""

TABLE = {
    "accounts.go": """core/accounts/departures core/routing/services AccountResolver=base.Resolver
        activationExpired addRespServiceImport=Account.expect_response AddServiceExport AddServiceImport
        addServiceImport=Accounts._import AddStreamExport AddStreamImport AddWeightedMappings
        CacheDirAccResolver=DirectoryResolver checkActivation checkExpiredResponses checkForReverseEntries
        DirAccResolver=DirectoryResolver internalClient=InternalClients.new processServiceImportResponse
        removeRespServiceImport=Account.take_response respondToUpdate=resolver/requests.answer
        selectMappedSubject sendTrackingLatency=Latency.measured serviceImportFormsCycle=_check_service_cycles
        setTraceDest shouldSample streamImportFormsCycle=_check_stream_cycles subscribeInternal
        UpdateAccountClaims=Accounts.update_claims URLAccResolver=URLResolver""",
    "archive/archive.go": "jetstream/disk/backup NewReader=BackupReader NewWriter=BackupWriter",
    "auth.go": """checkAuthentication=Authenticator.check checkClientTLSCertSubject=find_user
        comparePasswords=check_password configureAuthorization isBcrypt matchesPinnedCert=_is_pinned
        processClientOrLeafAuthentication=Attempt.run processUserPermissionsTemplate=templates.expand
        validateAllowedConnectionTypes=authorization._connection_types validateAuth""",
    "auth_callout.go": "fillClientInfo=Callout._describe processClientOrLeafCallout=Callout.ask",
    "avl/seqset.go": "Delete=seqset_delete Encode=seqset_encode Exists=seqset_exists Insert=seqset_insert",
    "ciphersuites.go": "defaultCipherSuites=openssl_ciphers",
    "client.go": """core/batch core/runtime/doorkeeper core/messages/headers core/runtime/quoting
        core/net/connectionbase core/subjects/match_cache core/tls/tlstransport core/subjects/subtable
        core/tls/tlsstate core/auth/permission_cache addShadowSub=add_shadow
        addShadowSubscriptions=add_shadows authViolation canSubscribe closeConnection connectionTypeAllowed
        deliverMsg doTLSHandshake=start_handshake enqueueProto flushClients=end_batch flushOutbound
        genHeader=begin_header getHeader=find_header processErr=TextSession.process_err
        processHeaderPub=parse_pub processInboundClientMsg processInboundMsg processMsgResults
        processPing processPingTimer
        processPong=textsession.process_pong processPub=parse_pub processServiceImport processSub
        processUnsub pubAllowed=Permissions.pub_allowed
        queueOutbound readLoop registerWithAccount removeHeaderIfPresent=remove_header removeSecretsFromTrace
        responseAllowed=replies_use sendErr sendOK setFirstPingTimer setHeader=headers.set_header
        setPermissions splitSubjectQueue stalledWait=Connection.stall traceMsg
        unsubscribe=subscriptions.unsubscribe""",
    "consumer.go": """jetstream/engine/jsonreq jetstream/engine/consumerbase jetstream/consumer/pending
        ackReply ackReplyInfo addConsumer=streams.Stream.apply_consumer assignNewPinId=assign_new_pin
        checkNewConsumerConfig=check_consumer_update checkPending checkStateForInterestStream
        cleanupNoInterestMessages deleteConsumer deleteNotActive=consumertimers.delete_not_active
        deliverMsg=consumerdelivery.deliver_msg didNotDeliver forceExpirePending
        getNextMsg=consumerdelivery.gather hasMaxDeliveries loopAndGatherMsgs=consumerdelivery.gather
        moveAckFloor needAck=removals.need_ack needFlowControl nextWaiting
        numPending=consumerstate.num_pending processAck processAckMsg processNak
        processNextMsgRequest=consumerpull.process_next_msg_request processResetReq processTerm processWaiting
        progressUpdate purge=removals.purge reconcileStateWithStream sampleAck
        selectStartingSeqNo=select_starting_seq sendFlowControl sendIdleHeartbeat
        setConsumerConfigDefaults=consumer_rules.with_defaults setPinnedTimer trackPending=pending_track
        updateAcks updateDelivered updateDeliveryInterest=consumertimers.update_delivery_interest
        writeStoreState=Consumer.write""",
    "cron.go": "dayMatches parseCron",
    "dirstore.go": """load=DirStore.load Merge=DirStore.merge Pack=DirStore.pack save saveIfNewer
        startExpiring=DirStore.expire""",
    "disk_avail.go": "diskAvailable",
    "events.go": """accConnsUpdate=Events.send_conns accountClaimUpdate
        accountConnectEvent=Events.connected accountDisconnectEvent=Events.disconnected
        addSystemAccountExports=add_system_exports
        registerSystemImports=add_system_imports reloadConfig=Services._reload
        sendAccountAuthErrorEvent=account_auth_error sendAuthErrorEvent=Events.auth_error
        sendInternalMsg=Events.publish_in sendLDMShutdownEventLocked=Events.lame_duck
        sendStatsz=Events.statsz_update statszReq=Services._statsz userInfoReq=Services._user_info zReq""",
    "feature_flags.go": "getMergedFeatureFlags printFeatureFlags",
    "filestore.go": """Compact=removing.compact compactWithFloor=rewrite_next
        convertCipher=conversion.convert_stream convertToEncrypted=conversion.convert_stream
        enforceBytesLimit=enforce_bytes enforceMsgLimit=enforce_msgs
        enforceMsgPerSubjectLimit=enforce_per_subject EraseMsg=removing.remove_msg
        FilteredState=queries.filtered_state flushPendingMsgs=block_flush genEncryptionKeys=key_create
        GetSeqFromTime=queries.seq_from_time indexCacheBuf=index_records LoadLastMsg=reading.load_last
        LoadMsg=reading.load loadMsgs=block_load LoadNextMsg=reading.load_next
        LoadPrevMsg=reading.load_prev MultiLastSeqs=queries.multi_last_seqs
        newMsgBlockForWrite=block_create NumPending=queries.num_pending Purge=purging.purge_all
        PurgeEx=removing.purge_ex readIndexInfo=read_old_index recoverFullState=load_index
        recoverMsgBlock=scan_block recoverMsgs=store/recovery.recover
        recoverMsgSchedulingState=schedule_scan recoverTTLState=load_ttls RemoveMsg=removing.remove_msg
        runMsgScheduling selectNextFirst SkipMsgs=writing.skip_msgs StoreMsg=writing.store_msg
        storeRawMsg=writing.store_msg SubjectsState SubjectsTotals Truncate=purging.truncate
        writeConsumerMeta writeFullState=maintenance.write_state writeMsgRecord=block_encode writeStreamMeta
        writeTombstone""",
    "ipqueue.go": "drain=Inbox.drain push=Inbox.post",
    "jetstream.go": """jetstream/engine/usage accountReservation checkAllLimits
        checkJetStreamExports=add_jetstream checkLimits=reservations.check_limits configJetStream
        decryptMeta=Keys.open DisableJetStream=Server.disable_jetstream dynJetStreamConfig=JetStreamConfig.of
        EnableJetStream=Server.enable_jetstream friendlyBytes JetStreamUsage jsAccount=JSAccount
        maxBytesLimits
        restartJetStream=Server.restart_jetstream selectLimits shutdownJetStream=JetStream.close
        signalPullConsumers sufficientResources tierName UpdateJetStreamLimits validateJetStreamOptions""",
    "gateway.go": """core/links/gateway_session gateways/gateways gateways/table gateways/info tls/gateways
        addURLs=gateways/remote.Remote.add createGateway=Gateways._create
        getOutboundGatewayConnections=GatewayTable.nearest_first gatewayCfg=gateways/remote.Remote
        gossipGatewaysToInboundGateway=about_others
        processGatewayConnect=gateways/handshake.Handshake.process_connect
        processGatewayInfo=gateways/handshake.Handshake.process_info processGatewayInfoFromRoute=told_by_route
        processImplicitGateway=Gateways.discovered reconnectGateway=gateways/solicit.Solicitor.dial_again
        registerOutboundGatewayConnection=GatewayTable.add removeRemoteGatewayConnection=GatewayTable.remove
        sendGatewayConfigsToRoute=about_connected sendGatewayConnect=gateways/info.OwnInfo.connect
        solicitGateway=gateways/solicit.Solicitor._dial startGateways=Gateways.start
        updateRemotesTLSConfig=gateways/reload.reload_gateways updateURLs=replace_discovered
        validateGatewayOptions=GatewayOptions.validate""",
    "jetstream_api.go": """apiDispatch=Api._dispatch delayedAPIResponder=Api._call_later getRequestInfo
        isEmptyRequest jsAccountInfoRequest=stream_requests._account_info
        jsConsumerCreateRequest=consumer_requests.create
        jsConsumerDeleteRequest=consumer_requests._delete jsConsumerInfoRequest=consumer_requests._info
        jsConsumerListRequest=consumer_requests._list jsConsumerPauseRequest=consumer_requests._pause
        jsConsumerUnpinRequest=consumer_requests._unpin
        jsLeaderAccountPurgeRequest=stream_requests.purge_account
        jsMsgDeleteRequest=_delete_message jsMsgGetRequest=_get_message
        jsStreamCreateRequest=stream_requests._create jsStreamDeleteRequest=stream_requests._delete
        jsStreamInfoRequest=stream_requests._info jsStreamListRequest=stream_requests._list_page
        jsStreamPurgeRequest=stream_requests._purge jsStreamRestoreRequest=stream_requests._restore
        jsStreamSnapshotRequest=stream_requests._snapshot jsStreamUpdateRequest=stream_requests._update
        sendJetStreamAPIAuditAdvisory=api_audit""",
    "jetstream_batching.go": """jetstream/state/batchtable checkFlowControl=check_flow
        checkMsgHeadersPreClusteredProposal=check_ahead commit=commit_batch
        fastBatchCommit=commit_fast_batch newAtomicBatch=find_or_begin newFastBatch=begin_fast_batch
        sendFlowControl=fastbatch.send_flow""",
    "jetstream_cluster.go": """applyMetaEntries=MetaState.apply decodeConsumerAssignment=decode_entry
        inflightConsumerInfo=inflight.Proposal inflightStreamInfo=inflight.Proposal
        jetStreamCluster=MetaState jsClusteredConsumerRequest=leader_requests._create_consumer
        jsClusteredStreamRequest=leader_requests._create
        processConsumerAssignmentResults=Results._consumer_refused
        processStreamAssignmentResults=Results._stream_refused""",
    "jetstream_errors.go": "IsNatsErr",
    "jetstream_events.go": "publishAdvisory=Advisories._publish",
    "jetstream_versioning.go": """errorOnRequiredApiLevel setDynamicConsumerMetadata
        setDynamicStreamMetadata setStaticConsumerMetadata setStaticStreamMetadata
        supportsRequiredApiLevel""",
    "jwt.go": "validateTrustedOperators",
    "leafnode.go": """core/links/leaf_session leafnodes/table leafnodes/permissions tls/leafs
        addLeafNodeConnection=LeafNodes.accepted connectToRemoteLeafNode=leafnodes/solicit.Solicitor._dial
        createLeafNode=LeafNodes._create doUpdateLNURLs=Remote.discovered
        handleLeafNodeLoop=LeafNodes._loop leafNodeFinishConnectProcess=LeafNodes.dialled
        leafPermViolation=LeafNodes._denied leafProcessErr=LeafNodes._peer_error
        negotiateLeafCompression=leafnodes/handshake.Handshake._compresses
        newLeafNodeCfg=leafnodes/remote.Remote
        pickNextURL=Remote.next_url processLeafNodeConnect=leafnodes/handshake.Handshake._connected
        processLeafnodeInfo=leafnodes/handshake.Handshake.process_peer_info
        sendLeafConnect=leafnodes/handshake.Handshake._connect
        sendPermsAndAccountInfo=leafnodes/info.OwnInfo.answer
        getNonLocalIPsIfHostIsIPAny=ToldAddress.address solicitLeafNodeRemotes=LeafNodes.solicit
        validateLeafNode""",
    "log.go": "ConfigureLogger RateLimitErrorf=Logger.allow ReOpenLogFile=Server.reopen_log",
    "monitor.go": """core/accounts/listing Accountz Connz=connz.connz expvarz=debugz.expvarz Gatewayz
        Healthz=healthz.healthz Ipqueuesz Jsz JszAccount Leafz profilez=profilez.profilez Raftz
        Routez=routez.routez Subsz=subsz.subsz Varz=varz.varz""",
    "msgtrace.go": """addEgressEvent=trace_egress addJetStreamEvent=trace_jetstream
        addServiceImportEvent=msgtrace.trace_service_import addStreamExportEvent=trace_stream_export
        addSubjectMappingEvent=msgtrace.trace_mapping initMsgTrace sendEvent=send_msg_trace""",
    "nkey.go": "generateNonce=new_nonce",
    "opts.go": """ConfigureOptions GenTLSConfig=context.make_context maybeReadPidFile overrideTLS
        parseAccountExports=exports.exports parseAccountImports=exports.imports
        parseAccountMappings=mappings.mappings parseAccounts=accounts.accounts
        parseAuthorization=authorization.authorization parseDuration=text.parse_duration
        parseJetStream=jetstream.jetstream parseJetStreamForAccount=account_jetstream parseTLS=tls.tls
        parseUserPermissions=permissions.permissions parseUsers=authorization.users
        processConfigFile=apply_config ProcessConfigFile=read_config processSignal
        setBaselineOptions=Options.baseline TLSConfigOpts=TLSOptions""",
    "parser.go": "parse",
    "raft.go": """bootstrapRaftNode=raft/files.bootstrap decodeAppendEntry
        decodeAppendEntryResponse=decode_response decodePeerState decodeVoteRequest decodeVoteResponse
        encodePeerState=put_peer_state encodeSnapshot=put_snapshot initRaftNode=RaftFiles.recover
        loadEntry=RaftFiles.load loadLastSnapshot=RaftFiles.load_snapshot readTermVote=decode_term_vote
        setupLastSnapshot=RaftFiles.find_snapshot storeToWAL=RaftFiles.store truncateWAL=cut_to
        writePeerState=RaftFiles.save_peers writeTermVote=RaftFiles.save_vote""",
    "rate_counter.go": "allow=TLSContext.allow",
    "reload.go": """applyOptions=Reload._apply_options
        clientHasMovedToDifferentAccount=ClientReload._has_moved recheckPinnedCerts=ClientReload._is_pinned
        Reload=Server.reload reloadAuthorization reloadClusterPermissions=ClusterReload._set_permissions
        reloadClusterPoolAndAccounts=ClusterReload._change_pools ReloadOptions
        validateClusterOpts=_check_cluster""",
    "ring.go": "append=Clients._on_closed",
    "route.go": """addRoute=Routes.add connectToRoute=cluster/solicit.Solicitor.dial
        createRoute=Cluster._create forwardNewRouteInfoToKnownServers=forward_new_route
        generateRouteInitialInfoJSON=cluster/info.OwnInfo.initial handleDuplicateRoute=_replaced_by
        hasThisRouteConfigured processImplicitRoute=implicit_targets
        processRouteConnect=cluster/handshake.Handshake.process_connect
        processRouteInfo=cluster/handshake.Handshake.process_info
        reConnectToRoute=cluster/solicit.Solicitor.dial_again removeAllRoutesExcept=Cluster.name_changed
        removeRoute=Routes.remove routeShouldDelayInfo=delays_info
        routeStillValid=cluster/solicit.Solicitor._valid sendAsyncInfoToClients=Clients.send_info
        sendRouteConnect=cluster/info.OwnInfo.connect solicitRoutes=cluster/solicit.Solicitor.solicit
        startRouteAcceptLoop=Cluster.start updateRemoteRoutePerms=Cluster._reloaded
        upgradeRouteToSolicited=upgrade_to_solicited""",
    "scheduler.go": """add=schedule_add decode=schedules_decode encode=schedules_encode
        getScheduledMessages=run_next parseMsgSchedule=cron_due remove=schedule_drop""",
    "sdm.go": "jetstream/stream/aging isSubjectDeleteMarker=aging.is_marker",
    "sendq.go": "send=InternalClient.publish",
    "server.go": """acceptConnections=AcceptLoop._accept acceptError=AcceptLoop._back_off ClientURL
        configureAccounts=Accounts.configure configureResolver createClient
        createClientEx=add_tls deletePortsFile=PortsFile.delete DisconnectClientByID
        fetchAccountClaims LDMClientByID logPid=write_pid_file logPorts=update_ports_file LookupAccount
        NumClients NumSubscriptions registerAccount=Accounts._register Running
        saveClosedClient=Clients._on_closed Shutdown Start=Server.start
        StartMonitoring=Monitor.listen StartProfiler=Profiler.listen tlsVersion updateAccountWithClaimJWT
        updateServerINFOAndSendINFOToClients=update_info validateOptions=Options.validate
        verifyAccountClaims WaitForShutdown""",
    "service.go": "Run=main.run",
    "signal.go": "handleSignals ProcessSignal resolvePids",
    "store.go": "DecodeStreamState=index_decode encodeConsumerState=consumer_encode StreamStore=MsgStore",
    "stream.go": """jetstream/publish/counter jetstream/publish/countersources jetstream/state/dedupe
        jetstream/state/headers ackMsg addStream=JSAccount.apply_add_stream calculateRetryBackoff
        checkMsgId=dedupe_find deleteMsg=Stream.delete_msg getDirectMulti=begin_multi getMessageTTL=header_ttl
        getMsg=Stream.get_msg mirrorInfo processDirectGetLastBySubjectRequest=process_direct_get_last
        processDirectGetRequest=process_direct_get processInboundJetStreamMsg=process_inbound_jetstream_msg
        processInboundMirrorMsg=process_inbound processInboundSourceMsg=process_inbound
        processJetStreamAtomicBatchMsg=process_atomic_batch_msg
        processJetStreamFastBatchMsg=process_fast_batch_msg processJetStreamMsg=process_jetstream_msg
        purge=stream.Stream.purge rebuildDedupe recoverStream=_recover_stream RestoreStream=Restore.run
        setupMirrorConsumer=Origin._set_up setupSourceConsumers signalConsumers=ConsumerList.stored
        snapshot=Snapshot.run sourcesInfo storeMsgId=dedupe_add subjectsOverlap=StreamChecks.check_overlap
        trySetupSourceConsumer=Origin._set_up update=streams.Stream.update""",
    "stream_backup.go": """CreateStreamSnapshotV2=BackupWriter.gather RestoreStreamV2=Restore.run
        streamSnapshotV2=Snapshot.run""",
    "stree/stree.go": "Delete=stree_delete Find=stree_find Insert=stree_insert Match=stree_next",
    "subject_transform.go": """getHashPartition=fnv1a indexPlaceHolders Match=SubjectTransform.match
        reverse=SubjectTransform.reverse subjectInfo TransformSubject=SubjectTransform.transform_subject
        transformTokenize""",
    "sublist.go": """core/subjects/subjecttrie core/subjects/trie All=Sublist.all
        HasInterest=Sublist.has_interest Insert=Sublist.insert IsValidSubject Match=Sublist.match
        matchLevel=match_locked NumInterest RegisterNotification=notifications.register_notification
        Remove=Sublist.remove RemoveBatch ReverseMatch Stats=Sublist.stats subjectIsSubsetMatch
        SubjectsCollide UpdateRemoteQSub=Sublist.update_remote_qsub""",
    "sysmem/mem_linux.go": "Memory=_memory_available",
    "thw/thw.go": """Add=wheel_add Decode=wheel_decode Encode=wheel_encode ExpireTasks=wheel_take
        Remove=wheel_remove""",
    "util.go": "parseHostPort parseInt64 parseSize",
}
"""By Go file: modules whose docstrings do not name it, as folder/name, and functions worth finding. In gnats
they have the Go name in snake_case, or the name behind "=", with as much of class and module as finds one."""

PLAIN = """conf/lex.go conf/parse.go const.go errors.go jetstream_errors_generated.go logger/log.go
    logger/syslog.go main.go memstore.go monitor_sort_opts.go pse/pse_linux.go"""
"""Go files that docstrings name, without functions worth finding."""

NOT_YET = """certidp/ certstore/ client_proxyproto.go jetstream_cluster.go mqtt.go
    ocsp.go ocsp_peer.go ocsp_responsecache.go proto.go raft.go raft_transport.go tpm/
    websocket.go"""
NOT_NEEDED = "ats/ dios.go elastic/ errors_gen.go gsl/"

INTRO = """# Where is it?

Find the files of nats-server's `server` folder in gnats, and their main functions. `stree/stree.go`
stands for its folder. [Architecture](architecture.md) goes the other way.

`make docs` writes this page from docstrings and a table in `tools/where_is_it.py`; `make lint` fails
when it is out of date.

## Not there yet

{not_yet}

## Not needed

{not_needed}; variants of files for other systems, and for releases of Go
"""

GO_FILE = r"\w[\w/]*\.go\b(?!\.\w)"
GO_NAME = r"(?<![\w.])[A-Za-z]*[a-z][A-Z]\w*(?![\w.])"
MODULE_DOC = re.compile(r'\s*"""(.*?)"""', re.DOTALL)
DEFINITION = re.compile(
    r"^(?P<indent> *)(?:(?:cdef )?class (?P<class>\w+)"
    r"|(?:async )?(?:def|cdef|cpdef)\b[^\n(=:]*?(?P<function>\w+)(?=\())"
    r"(?:\((?:[^()]|\([^()]*\))*\))?[^\n:]*:(?P<line>[^\n]*)\n"
    r'(?:\s*"""(?P<doc>.*?)"""\n)?',
    re.MULTILINE | re.DOTALL,
)
STUB = re.compile(r"\s*(pass|\.\.\.|return( -?\w+)?|raise NotImplementedError.*)\s*(#.*)?$")


class NotFoundError(Exception):
    """A docstring or the table names something that is not there."""


@dataclass(frozen=True, slots=True)
class Place:
    """A function or a class of gnats; a whole module when the name is empty."""

    path: str
    name: str = ""
    doc: str = field(default="", compare=False)
    is_stub: bool = field(default=False, compare=False)

    def is_called(self, name: str) -> bool:
        """Whether the name is this one's, with any number of its classes, module and folders before it."""
        return f"/{self.path.rpartition('.')[0]}.{self.name}".endswith((f".{name}", f"/{name}"))

    def link(self) -> str:
        module = f"[{re.sub('^(cython_src/)?gnats/', '', self.path)}](../{self.path})"
        return f"`{self.name}` in {module}" if self.name else module


def read_places(path: str, text: str, declares: bool) -> list[Place]:
    """Find a module, its classes and functions; of a file that declares only those that it defines inline."""
    start = MODULE_DOC.match(text)
    places = [Place(path, doc=start[1] if start else "")]
    around: list[tuple[int, str]] = []
    for found in DEFINITION.finditer(text):
        if declares and not found["class"] and " inline " not in found[0]:
            continue
        indent = len(found["indent"])
        around = [(outer, name) for outer, name in around if outer < indent]
        around.append((indent, found["class"] or found["function"]))
        body, _, rest = text[found.end() :].lstrip("\n").partition("\n")
        rest = rest.lstrip("\n")
        is_stub = bool(STUB.match(found["line"] or body)) and len(rest) - len(rest.lstrip(" ")) <= indent
        places.append(Place(path, ".".join(name for _, name in around), found["doc"] or "", is_stub))
    return places


def read_tree(root: Path) -> list[Place]:
    """Read the modules of gnats; declarations (.pxd) belong to the module (.pyx) beside them."""
    places = []
    files = sorted(path for tree in ("cython_src/gnats", "gnats") for path in (root / tree).rglob("*.p*"))
    for path in files:
        if path.suffix in (".py", ".pyx", ".pxd") and UNPORTED.isdisjoint(path.relative_to(root).parts):
            module = path.with_suffix(".pyx") if path.with_suffix(".pyx") in files else path
            places += read_places(str(module.relative_to(root)), path.read_text(), path.suffix == ".pxd")
    return places


def mentions(doc: str) -> list[tuple[str, str]]:
    """Find Go names in parentheses, each with the Go file behind it; with "" when they stand alone."""
    found: list[tuple[str, str]] = []
    for remark in re.findall(r"\(([^()]*)\)", doc):
        names: list[str] = []
        for word in re.findall(f"{GO_FILE}|{GO_NAME}", remark):
            if word.endswith(".go"):
                found += [(name, word) for name in names]
                names.clear()
            else:
                names.append(word)
        if re.fullmatch(f"{GO_NAME}((,| and|,\\s+and)\\s+{GO_NAME})*", remark):
            found += [(name, "") for name in names]
    return found


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


class Map:
    """By Go file, the modules that port it and the places of its functions."""

    def __init__(self, places: list[Place], table: dict[str, str], plain: str = "") -> None:
        self._paths = {place.path for place in places}
        self._named: dict[str, list[Place]] = defaultdict(list)
        for place in places:
            self._named[place.name.rpartition(".")[2]].append(place)
        self.modules: dict[str, set[str]] = {go: set() for go in [*table, *plain.split()]}
        self.functions: dict[str, dict[str, list[Place]]] = {go: {} for go in self.modules}
        ours: dict[str, dict[str, str]] = {go: {} for go in self.modules}
        for go, words in table.items():
            for word in words.split():
                name, _, our_name = word.partition("=")
                if "/" in name:
                    self.modules[go].add(self._find_module(go, name))
                else:
                    ours[go][name] = our_name
        for place in places:
            for go in re.findall(GO_FILE, "" if place.name else place.doc):
                self._known(go, place).add(place.path)
        for place in places:
            for name, file in mentions(place.doc):
                for go in [file] if file else self._files_of(name, place, ours):
                    self._known(go, place)
                    self.functions[go].setdefault(name, []).append(place)
        for go, functions in self.functions.items():
            for name in {**functions, **ours[go]}:
                mentioned = functions.get(name, [])
                found = self._find(go, name, ours[go].get(name, ""), is_mentioned=bool(mentioned))
                functions[name] = mentioned + found

    def _known(self, go: str, place: Place) -> set[str]:
        if go not in self.modules:
            raise NotFoundError(f"{place.path} names {go}: correct it, or add it to tools/where_is_it.py")
        return self.modules[go]

    def _find_module(self, go: str, name: str) -> str:
        """Find a module by folder and name, also in a folder below that one."""
        folder, _, stem = name.rpartition("/")
        found = {path for path in self._paths if Path(path).stem == stem and f"/{folder}/" in path}
        if len(found) != 1:
            raise NotFoundError(f"{go}: no module is called {name}: correct tools/where_is_it.py")
        return found.pop()

    def _files_of(self, name: str, place: Place, ours: dict[str, dict[str, str]]) -> list[str]:
        """Find the Go files of a name alone: those of the table, else the only one that its module ports."""
        ported = [go for go, paths in self.modules.items() if place.path in paths]
        listed = [go for go in ours if name in ours[go]]
        return listed or (ported if len(ported) == 1 and not self._named[name] else [])

    def _find(self, go: str, name: str, our_name: str, is_mentioned: bool) -> list[Place]:
        """Find a function, in the modules of its Go file first; a stub only when there is nothing else."""
        if our_name:
            found = [place for place in self._named[our_name.rpartition(".")[2]] if place.is_called(our_name)]
        else:
            same = snake_case(name)
            found = self._named[name] + self._named[same] or self._named[f"_{same}"]
            near = [place for place in found if place.path in self.modules[go]]
            found = near if near or is_mentioned else found
        found = list(dict.fromkeys([place for place in found if not place.is_stub] or found))
        if not found and (our_name or not is_mentioned):
            raise NotFoundError(f"{go}: nothing is called {our_name or name}: correct tools/where_is_it.py")
        if len(found) > (1 if our_name else 3):
            names_found = ", ".join(f"{place.path}:{place.name}" for place in found)
            raise NotFoundError(f"{go}: {name} may be {names_found}: say which in tools/where_is_it.py")
        return found


def draw(drawn: Map) -> str:
    """Write a section for each Go file."""
    lines = []
    for go, functions in sorted(drawn.functions.items()):
        paths = drawn.modules[go] or {place.path for places in functions.values() for place in places}
        if not paths:
            raise NotFoundError(f"{go}: no docstring names it: correct tools/where_is_it.py")
        lines += ["", f"## {go}", "", ", ".join(Place(path).link() for path in sorted(paths))]
        if functions:
            lines += ["", "| nats-server | gnats |", "|---|---|"]
        for name in sorted(functions, key=str.lower):
            functions_in = {place.path for place in functions[name] if place.name}
            shown = {x.link() for x in functions[name] if x.name or x.path not in functions_in}
            lines.append(f"| `{name}` | {', '.join(sorted(shown))} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the page; with --check, 1 when docs has another one."""
    missing = {
        "not_yet": ", ".join(f"`{go}`" for go in NOT_YET.split()),
        "not_needed": ", ".join(f"`{go}`" for go in NOT_NEEDED.split()),
    }
    try:
        page = INTRO.format(**missing) + draw(Map(read_tree(ROOT), TABLE, PLAIN))
    except NotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    if "--check" not in sys.argv[1:]:
        print(page, end="")
    elif (ROOT / PAGE).read_text() != page:
        print(f"{PAGE} is out of date: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The replayers' messages (FIX/FAST reference 2.1) as a data dictionary of QuickFIX; `*` marks what is required."""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

_FIELDS = """
7 BeginSeqNo SEQNUM, 8 BeginString STRING, 9 BodyLength INT, 10 CheckSum STRING, 16 EndSeqNo SEQNUM,
34 MsgSeqNum SEQNUM, 35 MsgType STRING, 36 NewSeqNo SEQNUM, 43 PossDupFlag BOOLEAN, 45 RefSeqNum SEQNUM,
49 SenderCompID STRING, 52 SendingTime UTCTIMESTAMP, 56 TargetCompID STRING, 58 Text STRING, 95 RawDataLength LENGTH,
96 RawData DATA, 98 EncryptMethod INT, 108 HeartBtInt INT, 112 TestReqID STRING, 122 OrigSendingTime UTCTIMESTAMP,
123 GapFillFlag BOOLEAN, 141 ResetSeqNumFlag BOOLEAN, 371 RefTagID INT, 372 RefMsgType STRING,
373 SessionRejectReason INT, 380 BusinessRejectReason INT, 911 TotNumReports INT, 1180 ApplID STRING,
1181 ApplSeqNum STRING, 1182 ApplBegSeqNum INT, 1183 ApplEndSeqNum INT, 1346 ApplReqID STRING, 1347 ApplReqType INT,
1348 ApplRespType INT, 1350 ApplLastSeqNum INT, 1351 NoApplIDs NUMINGROUP, 1352 ApplResendFlag BOOLEAN,
1353 ApplRespID STRING, 1354 ApplRespError INT, 1355 RefApplID STRING, 1356 ApplReportID STRING,
1357 RefApplLastSeqNum INT, 1426 ApplReportType INT, 10054 NoApplSeqNums NUMINGROUP, 10055 RawDataOffset INT,
35021 ApplResponseStatus INT
"""
_HEADER = "8* 9* 35* 49* 56* 34* 52* 43 122"
# Type, name, category, fields; a group is its count and its members.
_MESSAGES = """
0|Heartbeat|admin|112
1|TestRequest|admin|112*
2|ResendRequest|admin|7* 16*
3|Reject|admin|45* 371 372 373 58
4|SequenceReset|admin|123 36*
5|Logout|admin|58
A|Logon|admin|98* 108* 141
j|BusinessMessageReject|app|45 372* 380* 58
BW|ApplicationMessageRequest|app|1346* 1347* 1351*(1355* 1182* 1183*)
BX|ApplicationMessageRequestAck|app|1353* 1346* 1347* 1348* 1351(1355* 1182 1183 1354 35021*)
URDR|ApplicationRawDataReporting|app|1346* 1353* 1180* 1352* 95* 96* 911* 10054*(1181* 1350* 10055* 95*)
BY|ApplicationMessageReport|app|1356* 1426* 1347* 1346* 1353* 1351*(1355* 1357 1354)
"""
_NAMES = {number: name for number, name, _ in (line.split() for line in _FIELDS.replace("\n", " ").split(","))}


def _member(item: str, tag: str = "field", more: str = "") -> str:
    required = "Y" if item.endswith("*") else "N"
    return f'<{tag} name="{_NAMES[item.rstrip("*")]}" required="{required}"' + (f">{more}</{tag}>" if more else "/>")


def _members(text: str) -> str:
    plain, _, group = text.partition("(")
    *fields, last = plain.split()
    inner = "".join(map(_member, group.rstrip(")").split()))
    return "".join(map(_member, fields)) + (_member(last, "group", inner) if group else _member(last))


def dictionary_xml() -> str:
    messages = []
    for line in _MESSAGES.strip().splitlines():
        kind, name, category, fields = line.split("|")
        messages.append(
            f'<message name="{name}" msgtype="{kind}" msgcat={quoteattr(category)}>{_members(fields)}</message>'
        )
    fields = "".join(
        f'<field number="{number}" name="{name}" type="{kind}"/>'
        for number, name, kind in (line.split() for line in _FIELDS.replace("\n", " ").split(","))
    )
    return (
        f'<fix type="FIX" major="4" minor="4"><header>{_members(_HEADER)}</header>'
        f"<messages>{''.join(messages)}</messages><trailer>{_members('10*')}</trailer>"
        f"<components/><fields>{fields}</fields></fix>"
    )

"""The words of each system: functions that change nothing, words that depend on chance or the clock, and grammar.

The lists were made from the systems' own catalogues. Functions that are missing in them (of later versions, or of
extensions) are assumed to do anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .lexemes import SystemName


@dataclass(frozen=True)
class Dialect:
    """The words of one database system. All names are in lower case.

    Attributes:
        parser: sqlglot's name for the dialect.
        functions: built in, and without any effect of their own.
        chance: functions whose value depends on chance, the clock or anything else that is not in a state.
        arguments: functions that use the clock or chance if they have fewer than this number of arguments.
        bare: functions that have an effect if they are given arguments.
        clock: words that stand for the time, without parentheses.
        moments: strings that stand for the time.
        timeless: types to which anything can be converted without reading the clock; None if no conversion reads it.
        converts: functions that turn text, or a time of day, into a value that may depend on the clock.
        relations: names of tables, as written, that show the server's activity.
        variables: system variables that depend on chance or the clock.
        grammar: words, or pairs of words, that may stand before a parenthesis and are no function.
        into: the kind of a statement with INTO that does not follow INSERT or REPLACE.
        assigns: `:=` sets a variable.
    """

    parser: str
    functions: frozenset[str]
    chance: frozenset[str]
    relations: re.Pattern[str]
    into: str
    arguments: Mapping[str, int] = field(default_factory=dict)
    bare: frozenset[str] = frozenset()
    clock: frozenset[str] = frozenset()
    moments: frozenset[str] = frozenset()
    timeless: frozenset[str] | None = None
    converts: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    grammar: frozenset[str] = frozenset()
    assigns: bool = False

    @cached_property
    def doubtful(self) -> re.Pattern[str]:
        """Finds, in a text that cannot be read, what may depend on chance or the clock."""
        words = (self.chance | self.clock | self.moments | self.arguments.keys()) - {"default"}
        return re.compile(rf"\b({'|'.join(sorted(words))})\b|{self.relations.pattern}", re.IGNORECASE)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GRAMMAR = _names("""
all and any as between by case check default distinct else except exists from group having in intersect into join
lateral like limit not offset on or returning select set some then union unique using values when where with
""") | {"foreign key", "grouping sets", "not materialized", "nulls over", "primary key"}
"""Reserved in every database system, or unmistakable."""

_SQLITE = _names("""
abs acos acosh asin asinh atan atan2 atanh avg bm25 cast ceil ceiling changes char coalesce concat concat_ws cos cosh
count cume_dist date datetime decimal decimal_add decimal_cmp decimal_exp decimal_mul decimal_pow2 decimal_sub
decimal_sum degrees dense_rank exp first_value floor format generate_series glob group_concat hex highlight if ifnull
iif instr json json_array json_array_length json_each json_error_position json_extract json_group_array
json_group_object json_insert json_object json_patch json_pretty json_quote json_remove json_replace json_set json_tree
json_type json_valid jsonb julianday lag last_insert_rowid last_value lead length like likelihood likely ln log log10
log2 lower ltrim match matchinfo max min mod nth_value ntile nullif octet_length offsets percent_rank pi pow power
printf quote radians rank regexp replace round row_number rtreecheck rtreedepth rtreenode rtrim sign sin sinh snippet
soundex sqlite_compileoption_get sqlite_compileoption_used sqlite_source_id sqlite_version sqrt strftime string_agg
substr substring subtype sum tan tanh time timediff total total_changes trim trunc typeof unhex unicode unixepoch
unlikely upper zeroblob
""")
"""`PRAGMA function_list` of SQLite 3.40, its virtual tables, and later ones; without those that write or load."""

_SQLITE_CHANCE = _names("random randomblob current_date current_time current_timestamp")

_READING_PRAGMAS = _names("""
collation_list compile_options database_list foreign_key_check foreign_key_list function_list index_info index_list
index_xinfo integrity_check module_list pragma_list quick_check table_info table_list table_xinfo
""")

PRAGMA_QUESTIONS = _READING_PRAGMAS | _names("""
analysis_limit application_id auto_vacuum automatic_index busy_timeout cache_size cache_spill cell_size_check
checkpoint_fullfsync defer_foreign_keys encoding foreign_keys freelist_count fullfsync ignore_check_constraints
journal_mode journal_size_limit legacy_alter_table locking_mode max_page_count mmap_size page_count page_size
query_only read_uncommitted recursive_triggers reverse_unordered_selects schema_version secure_delete synchronous
temp_store threads trusted_schema user_version wal_autocheckpoint writable_schema
""")
"""SQLite's pragmas that change nothing without an argument."""

PRAGMA_LOOKUPS = _READING_PRAGMAS
"""SQLite's pragmas that change nothing with an argument in parentheses."""

_POSTGRES = _names("""
abbrev abs aclcontains acldefault aclexplode acos acosd acosh age area array_agg array_append array_cat array_dims
array_fill array_length array_lower array_ndims array_position array_positions array_prepend array_remove array_replace
array_to_json array_to_string array_to_tsvector array_upper ascii asin asind asinh atan atan2 atan2d atand atanh avg
bigint bit bit_and bit_count bit_length bit_or bit_xor bool bool_and bool_or boolean bound_box box bpchar broadcast
btrim bytea cardinality cast cbrt ceil ceiling center char char_length character character_length chr cidr circle
coalesce col_description concat concat_ws convert convert_from convert_to corr cos cosd cosh cot cotd count covar_pop
covar_samp cume_dist current_database current_query current_schema current_schemas current_setting current_user currval
date date_bin date_part date_trunc datemultirange daterange dec decimal decode degrees dense_rank diagonal diameter div
encode enum_first enum_last enum_range every exp extract factorial family first_value float float4 float8 floor format
format_type gcd generate_series generate_subscripts get_bit get_byte get_current_ts_config getdatabaseencoding
getpgusername greatest grouping has_any_column_privilege has_column_privilege has_database_privilege
has_foreign_data_wrapper_privilege has_function_privilege has_language_privilege has_parameter_privilege
has_schema_privilege has_sequence_privilege has_server_privilege has_table_privilege has_tablespace_privilege
has_type_privilege hashtext hashtextextended height host hostmask in_range inet_client_addr inet_merge inet_same_family
inet_server_addr inet_server_port initcap int int2 int4 int4multirange int4range int8 int8multirange int8range integer
interval is_normalized isclosed isempty isfinite ishorizontal isopen isparallel isperp isvertical json_agg
json_array_elements json_array_elements_text json_array_length json_build_array json_build_object json_each
json_each_text json_extract_path json_extract_path_text json_object json_object_agg json_object_keys
json_populate_record json_populate_recordset json_strip_nulls json_to_record json_to_recordset json_to_tsvector
json_typeof jsonb jsonb_agg jsonb_array_elements jsonb_array_elements_text jsonb_array_length jsonb_build_array
jsonb_build_object jsonb_concat jsonb_delete jsonb_each jsonb_each_text jsonb_exists jsonb_extract_path
jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg jsonb_object_keys jsonb_path_exists
jsonb_path_exists_tz jsonb_path_match jsonb_path_match_tz jsonb_path_query jsonb_path_query_array
jsonb_path_query_array_tz jsonb_path_query_first jsonb_path_query_first_tz jsonb_path_query_tz jsonb_populate_record
jsonb_populate_recordset jsonb_pretty jsonb_set jsonb_set_lax jsonb_strip_nulls jsonb_to_record jsonb_to_recordset
jsonb_to_tsvector jsonb_typeof jsonpath justify_days justify_hours justify_interval lag last_value lastval lcm lead
least left length like line ln log log10 lower lower_inc lower_inf lpad lseg ltrim macaddr macaddr8 macaddr8_set7bit
make_date make_interval make_time make_timestamp make_timestamptz makeaclitem masklen max md5 min min_scale mod mode
money multirange name nchar netmask network normalize npoints nth_value ntile nullif num_nonnulls num_nulls numeric
nummultirange numnode numrange obj_description octet_length oid oidvectortypes overlaps overlay parse_ident path pclose
percent_rank percentile_cont percentile_disc pg_available_extension_versions pg_available_extensions pg_char_to_encoding
pg_client_encoding pg_collation_actual_version pg_collation_for pg_collation_is_visible pg_column_compression
pg_column_is_updatable pg_column_size pg_config pg_conversion_is_visible pg_database_collation_actual_version
pg_describe_object pg_encoding_max_length pg_encoding_to_char pg_extension_update_paths pg_filenode_relation
pg_function_is_visible pg_get_constraintdef pg_get_expr pg_get_function_arg_default pg_get_function_arguments
pg_get_function_identity_arguments pg_get_function_result pg_get_function_sqlbody pg_get_functiondef pg_get_indexdef
pg_get_keywords pg_get_object_address pg_get_partition_constraintdef pg_get_partkeydef pg_get_replica_identity_index
pg_get_ruledef pg_get_serial_sequence pg_get_statisticsobjdef pg_get_statisticsobjdef_columns
pg_get_statisticsobjdef_expressions pg_get_triggerdef pg_get_userbyid pg_get_viewdef pg_has_role pg_identify_object
pg_identify_object_as_address pg_index_column_has_property pg_index_has_property pg_indexam_has_property
pg_indexam_progress_phasename pg_indexes_size pg_is_in_recovery pg_is_other_temp_schema pg_jit_available
pg_listening_channels pg_lsn pg_mcv_list_items pg_my_temp_schema pg_opclass_is_visible pg_operator_is_visible
pg_opfamily_is_visible pg_options_to_table pg_partition_ancestors pg_partition_root pg_partition_tree
pg_relation_filenode pg_relation_filepath pg_relation_is_publishable pg_relation_is_updatable pg_relation_size
pg_replication_origin_oid pg_sequence_last_value pg_sequence_parameters pg_settings_get_flags pg_show_all_settings
pg_size_bytes pg_size_pretty pg_sleep pg_sleep_for pg_sleep_until pg_snapshot_xip pg_snapshot_xmax pg_snapshot_xmin
pg_statistics_obj_is_visible pg_table_is_visible pg_table_size pg_tablespace_databases pg_tablespace_location
pg_total_relation_size pg_trigger_depth pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible
pg_ts_template_is_visible pg_type_is_visible pg_typeof pg_visible_in_snapshot pg_wal_lsn_diff pg_walfile_name
pg_walfile_name_offset phraseto_tsquery pi plainto_tsquery point polygon popen position pow power querytree quote_ident
quote_literal quote_nullable radians radius range_agg range_intersect_agg range_merge rank real regclass regexp_count
regexp_instr regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
regexp_substr regnamespace regproc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
regr_syy regtype repeat replace reverse right round row_number row_security_active row_to_json rpad rtrim scale
session_user set_bit set_byte set_masklen setweight sha224 sha256 sha384 sha512 shobj_description sign sin sind sinh
slope smallint split_part sqrt starts_with stddev stddev_pop stddev_samp string_agg string_to_array string_to_table
strip strpos substr substring sum tan tand tanh text time timestamp timestamptz timetz timezone to_ascii to_char to_date
to_hex to_json to_jsonb to_number to_regclass to_regcollation to_regnamespace to_regoper to_regoperator to_regproc
to_regprocedure to_regrole to_regtype to_timestamp to_tsquery to_tsvector translate treat trim trim_array trim_scale
trunc ts_debug ts_delete ts_filter ts_headline ts_lexize ts_parse ts_rank ts_rank_cd ts_token_type tsmultirange tsquery
tsquery_phrase tsrange tstzmultirange tstzrange tsvector tsvector_to_array txid_snapshot_xip txid_snapshot_xmax
txid_snapshot_xmin txid_visible_in_snapshot unistr unnest upper upper_inc upper_inf uuid var_pop var_samp varbit varchar
variance version websearch_to_tsquery width width_bucket xid xml xml_is_well_formed xml_is_well_formed_content
xml_is_well_formed_document xmlagg xmlattributes xmlcomment xmlconcat xmlelement xmlexists xmlforest xmlnamespaces
xmlparse xmlpi xmlroot xmlserialize xmltable xmlvalidate xpath xpath_exists
""")
"""`pg_proc` of PostgreSQL 15: the stable functions that are useful in a query, the volatile ones without an effect, and
those of the grammar. Not included: `txid_current`, which takes a transaction id, and functions that read or run
something that a text names, such as `table_to_xml`, `query_to_xml`, `ts_stat` and `ts_rewrite`."""

_POSTGRES_CHANCE = _names("""
clock_timestamp gen_random_uuid inet_client_port mxid_age now pg_backend_pid pg_blocking_pids pg_conf_load_time
pg_control_checkpoint pg_control_init pg_control_recovery pg_control_system pg_current_snapshot pg_current_wal_flush_lsn
pg_current_wal_insert_lsn pg_current_wal_lsn pg_current_xact_id_if_assigned pg_cursor pg_database_size
pg_get_backend_memory_contexts pg_get_shmem_allocations pg_last_committed_xact pg_lock_status pg_postmaster_start_time
pg_prepared_statement pg_prepared_xact pg_tablespace_size pg_timezone_abbrevs pg_timezone_names pg_xact_commit_timestamp
pg_xact_status random statement_timestamp timeofday transaction_timestamp txid_current_if_assigned txid_current_snapshot
txid_status
""")

_POSTGRES_EXTENSIONS_CHANCE = _names(
    "gen_random_bytes gen_salt uuid_generate_v1 uuid_generate_v1mc uuid_generate_v4 pg_stat_statements"
)
"""Functions of extensions such as pgcrypto."""

_POSTGRES_LATER_CHANCE = _names("array_sample array_shuffle random_normal uuidv4 uuidv7")

POSTGRES_TIMELESS = _names("""
aclitem bigint bigserial bit bool boolean box bpchar bytea char character cid cidr circle decimal double float float4
float8 inet int int2 int2vector int4 int4multirange int4range int8 int8multirange int8range integer interval json jsonb
jsonpath line lseg macaddr macaddr8 money name national nchar numeric nummultirange numrange oid oidvector path pg_lsn
pg_snapshot point polygon real refcursor regclass regcollation regconfig regdictionary regnamespace regoper regoperator
regproc regprocedure regrole regtype smallint text tid tsquery tsvector txid_snapshot uuid varbit varchar xid xid8 xml
""")
"""Types to which PostgreSQL converts anything without reading the clock, and arrays of them.

Any other may be a time, or contain one: the text that is converted to it may contain the word `now`.
"""

_POSTGRES_CONVERTS = _names("""
date datemultirange daterange json_populate_record json_populate_recordset json_to_record json_to_recordset
jsonb_path_exists_tz jsonb_path_match_tz jsonb_path_query_array_tz jsonb_path_query_first_tz jsonb_path_query_tz
jsonb_populate_record jsonb_populate_recordset jsonb_to_record jsonb_to_recordset time timestamp timestamptz timezone
tsmultirange tsrange tstzmultirange tstzrange xmltable
""")
"""Functions with the name of a type: with one argument they are conversions."""

_GEOMETRY = _names("""
area asbinary astext aswkb aswkt boundary buffer centroid contains convexhull crosses dimension disjoint endpoint
envelope equals exteriorring geomcollfromtext geomcollfromwkb geometrycollectionfromtext geometrycollectionfromwkb
geometryfromtext geometryfromwkb geometryn geometrytype geomfromtext geomfromwkb interiorringn intersects isclosed
isempty isring issimple length linefromtext linefromwkb linestringfromtext linestringfromwkb mlinefromtext
mpointfromtext mpointfromwkb mpolyfromtext mpolyfromwkb multilinestringfromtext multipointfromtext multipointfromwkb
multipolygonfromtext multipolygonfromwkb numgeometries numinteriorrings numpoints overlaps pointfromtext pointfromwkb
pointn pointonsurface polyfromtext polyfromwkb polygonfromtext polygonfromwkb srid startpoint touches within x y
""")
"""Functions of MariaDB, each of which also exists with the prefix `st_`."""

_MARIADB = (
    _names("""
abs acos add_months adddate addtime aes_decrypt aes_encrypt ascii asin atan atan2 avg benchmark bin binary bit_and
bit_count bit_length bit_or bit_xor cast ceil ceiling char char_length character_length charset chr coalesce
coercibility collation column_add column_check column_create column_delete column_exists column_get column_json
column_list compress concat concat_ws conv convert convert_tz cos cot count crc32 crc32c cume_dist current_role
current_user database date date_add date_format date_sub datediff day dayname dayofmonth dayofweek dayofyear decode
decode_histogram degrees dense_rank des_decrypt des_encrypt elt encode encrypt exists exp export_set extract
extractvalue field find_in_set first_value floor format found_rows from_base64 from_days from_unixtime
geometrycollection get_format glength greatest group_concat hex hour if ifnull inet6_aton inet6_ntoa inet_aton inet_ntoa
insert instr interval is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6 isnull json_array json_array_append
json_array_insert json_arrayagg json_compact json_contains json_contains_path json_depth json_detailed json_equals
json_exists json_extract json_insert json_keys json_length json_loose json_merge json_merge_patch json_merge_preserve
json_normalize json_object json_objectagg json_overlaps json_pretty json_query json_quote json_remove json_replace
json_search json_set json_table json_type json_unquote json_valid json_value lag last_day last_insert_id last_value
lastval lcase lead least left lengthb linestring ln locate log log10 log2 lower lpad ltrim make_set makedate maketime
max mbrcontains mbrdisjoint mbrequal mbrintersects mbroverlaps mbrtouches mbrwithin md5 median microsecond mid min
minute mlinefromwkb mod month monthname multilinestring multilinestringfromwkb multipoint multipolygon name_const
natural_sort_key nth_value ntile nullif nvl nvl2 oct octet_length old_password ord password percent_rank percentile_cont
percentile_disc period_add period_diff pi point polygon position pow power quarter quote radians rand rank regexp_instr
regexp_replace regexp_substr repeat replace reverse right round row row_count row_number rownum rpad rtrim schema
schemas sec_to_time second session_user sformat sha sha1 sha2 sign sin sleep soundex space sqrt st_asgeojson
st_difference st_distance st_distance_sphere st_geomfromgeojson st_intersection st_relate st_symdifference st_union std
stddev stddev_pop stddev_samp str_to_date strcmp subdate substr substring substring_index subtime sum system_user tan
time time_format time_to_sec timediff timestamp timestampadd timestampdiff to_base64 to_char to_days to_seconds trim
truncate ucase uncompress uncompressed_length unhex unix_timestamp updatexml upper user value values var_pop var_samp
variance version week weekday weekofyear weight_string year yearweek
""")
    | _GEOMETRY
    | {f"st_{name}" for name in _GEOMETRY}
)
"""`information_schema.sql_functions` and the help tables of MariaDB 10.11, each checked to exist."""

_MARIADB_CHANCE = _names("""
connection_id curdate current_date current_time current_timestamp curtime default is_free_lock is_used_lock localtime
localtimestamp now random_bytes sys_guid sysdate utc_date utc_time utc_timestamp uuid
""")

MARIADB_TIMES = _names("addtime json_table maketime sec_to_time str_to_date subtime timediff")
"""Functions of MariaDB whose value may be a time of day: converted to a date and time, it is today's."""

STABLE_SHOWS = _names("""
authors character charset collation columns contributors count create databases engines errors fields function grants
index indexes keys locales package plugins privileges procedure schemas tables triggers warnings
""")
"""Lists of MariaDB's SHOW that are independent of the server's activity and the clock."""

FILE_TIMES = _names("""
avg_row_length check_time create_time data_free data_length index_length max_data_length table_rows update_time
""")
"""Columns of MariaDB's `information_schema.tables` and `partitions` that are estimates or times."""

DIALECTS: dict[SystemName, Dialect] = {
    "sqlite": Dialect(
        parser="sqlite",
        functions=_SQLITE | _SQLITE_CHANCE | {f"pragma_{name}" for name in PRAGMA_QUESTIONS},
        chance=_SQLITE_CHANCE,
        relations=re.compile("sqlite_stmt"),
        into="write",
        arguments={"date": 1, "datetime": 1, "julianday": 1, "strftime": 2, "time": 1, "unixepoch": 1},
        clock=_names("current_date current_time current_timestamp"),
        moments=_names("now subsec subsecond"),
        grammar=_GRAMMAR | _names("regexp match") | {"on conflict"},
    ),
    "postgres": Dialect(
        parser="postgres",
        functions=_POSTGRES | _POSTGRES_CHANCE | _POSTGRES_EXTENSIONS_CHANCE,
        chance=_POSTGRES_CHANCE | _POSTGRES_EXTENSIONS_CHANCE | _POSTGRES_LATER_CHANCE,
        relations=re.compile(
            r"pg_(stat_.*|statio_.*|stat_get.*|locks|cursors|prepared_(statements|xacts)|timezone_(names|abbrevs)"
            r"|shmem_allocations|backend_memory_contexts|replication_.*|hba_file_rules|file_settings)"
        ),
        into="write",
        arguments={"age": 2},
        clock=_names("current_date current_time current_timestamp localtime localtimestamp timetz"),
        moments=_names("now today tomorrow yesterday"),
        timeless=POSTGRES_TIMELESS,
        converts=_POSTGRES_CONVERTS,
        grammar=_GRAMMAR
        | _names("array cube ilike only rollup row to")
        | {f"using {method}" for method in ("brin", "btree", "gin", "gist", "hash", "spgist")}
        | {"bit varying", "char varying", "character varying", "fetch first", "fetch next"}
        | {"on conflict", "tablesample bernoulli", "tablesample system", "then insert", "time zone"},
    ),
    "mariadb": Dialect(
        parser="mysql",
        functions=_MARIADB | _MARIADB_CHANCE,
        chance=_MARIADB_CHANCE | _names("uuid_short uuid_v4 uuid_v7"),  # the first changes a counter in the server, too
        relations=re.compile(
            r"(performance_schema|sys)\..*|information_schema\.(events|files|profiling|tablespaces)|processlist|innodb_.*"
            r"|(global|session)_(status|variables)|system_variables|(client|user|index|table)_statistics"
            r"|thread_pool_.*|metadata_lock_info|optimizer_trace|key_caches|general_log|slow_log|query_cache_info"
        ),
        into="other",
        converts=MARIADB_TIMES,
        arguments={"encrypt": 2, "rand": 1, "unix_timestamp": 1},
        bare=frozenset({"last_insert_id"}),
        clock=_names(
            "current_date current_time current_timestamp localtime localtimestamp utc_date utc_time "
            "utc_timestamp sysdate"
        ),
        variables=_names("timestamp rand_seed1 rand_seed2 pseudo_thread_id gtid_binlog_pos gtid_current_pos last_gtid"),
        grammar=_GRAMMAR
        | _names("""
            bigint blob decimal dec div double enum fixed float foreign int integer key mediumint numeric
            match partition real regexp rlike smallint tinyint varbinary varchar varying xor
        """)
        | {"ignore index", "force index", "use index", "ignore key", "force key", "use key"},
        assigns=True,
    ),
}

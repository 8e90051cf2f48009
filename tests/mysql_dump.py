"""A dump as mysqldump 8 writes it, with what is awkward in it and can yet be loaded by every database system."""

SHOP = r"""-- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)
-- it's a comment; with "quotes" and `more
/*!40101 SET NAMES utf8mb4 */;
CREATE USER 'shop'@'%' IDENTIFIED BY 'x;y';
GRANT SELECT ON *.* TO 'shop'@'%';
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `Shop` /*!80016 DEFAULT ENCRYPTION='N' */;
USE `Shop`;
DROP TABLE IF EXISTS `Kinds`;
CREATE TABLE `Kinds` (
  `Id` int unsigned NOT NULL AUTO_INCREMENT,
  `Name` varchar(60) COLLATE utf8mb4_0900_as_cs NOT NULL DEFAULT 'it''s' COMMENT 'the kind''s name, (x)',
  `Group` enum('a','b''c','d,e') CHARACTER SET latin1 COLLATE latin1_swedish_ci DEFAULT 'a',
  PRIMARY KEY (`Id`),
  UNIQUE KEY `name` (`Name`),
  KEY `grouped` (`Group`)
) ENGINE=InnoDB AUTO_INCREMENT=50 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci COMMENT='all; (of them)';
LOCK TABLES `Kinds` WRITE;
/*!40000 ALTER TABLE `Kinds` DISABLE KEYS */;
INSERT INTO `Kinds` VALUES (1,'plain','a'),(2,'it\'s','b\'c'),(7,'semi;colon -- no /* comment */','d,e');
/*!40000 ALTER TABLE `Kinds` ENABLE KEYS */;
UNLOCK TABLES;
SET foreign_key_checks = 0;
CREATE TABLE `items` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `kind` int unsigned DEFAULT NULL,
  `flag` tinyint(1) NOT NULL DEFAULT '1',
  `price` decimal(19,4) DEFAULT '0.0000',
  `ratio` float(10,2) DEFAULT NULL,
  `born` date NOT NULL DEFAULT '1970-01-01',
  `made` datetime NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `changed` timestamp(6) NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  `lasts` time DEFAULT NULL,
  `hash` varbinary(4) DEFAULT NULL,
  `doc` json DEFAULT NULL,
  `note` varchar(250),
  PRIMARY KEY (`id`),
  UNIQUE KEY `noted` (`note`(100)),
  KEY `grouped` (`flag` DESC,`kind`),
  KEY `folded` (`born`) /*!50100 USING BTREE */,
  FULLTEXT KEY `words` (`note`),
  CONSTRAINT `items_kind` FOREIGN KEY (`kind`) REFERENCES `Kinds` (`Id`) ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT `positive` CHECK ((`price` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=12 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `items` (`id`, `kind`, `flag`, `price`, `born`, `made`, `lasts`, `hash`, `doc`, `note`) VALUES
(1,1,1,12.5000,'1999-12-31','2020-02-29 23:59:59','838:59:59',0x0001FF00,'{\"a\": \"x\\\"y\"}',
 'tab\t line\r\nend é'),
-- a remark; with 'a quote
(2,99,0,NULL,'1970-01-01','2020-01-01 00:00:00','-01:30:00',0x00,'null',NULL),
(3,NULL,0,0.0001,'2020-01-01','2020-01-01 00:00:00',NULL,NULL,NULL,'5%\% \_');
/*!50001 CREATE VIEW `above` AS SELECT 1 AS `Id`, 1 AS `Name`*/;
/*!50001 CREATE VIEW `beneath` AS SELECT 1 AS `Id`, 1 AS `Name`*/;
/*!50001 DROP VIEW IF EXISTS `above`*/;
/*!50001 CREATE ALGORITHM=UNDEFINED */
/*!50013 DEFINER=`root`@`localhost` SQL SECURITY DEFINER */
/*!50001 VIEW `above` AS select `b`.`Id` AS `Id`,ifnull(`b`.`Name`,_utf8mb4'none') AS `Name`
  from `Shop`.`beneath` `b` */;
/*!50001 DROP VIEW IF EXISTS `beneath`*/;
/*!50001 CREATE VIEW `beneath` AS select `k`.`Id` AS `Id`,`k`.`Name` AS `Name` from `Kinds` `k`
  where (`k`.`Name` <> '*/') */
/*!50002 WITH CASCADED CHECK OPTION */;
"""
